// Rows that do not mix stay on the CTAs that own them.
// RUN: tk-opt %s --pass-pipeline='builtin.module(tk-schedule-phases{target=sm_90a},megakernel.kernel(tk-insert-barriers))' | FileCheck %s

// The sum of a row and what follows it have the same tiles of whole rows; only the sum over all rows needs all CTAs.
// CHECK-LABEL: megakernel.kernel @softmax
// CHECK: megakernel.tile {{.*}} outs(%[[SUM:.*]] : memref<256xf32>) sizes [[[ROWS:[0-9]+]], 512]
// CHECK: megakernel.barrier <cta>
// CHECK-NEXT: megakernel.phase {
// CHECK-NEXT: megakernel.tile {{.*}} outs(%[[Y:.*]] : memref<256x512xf32>) sizes [[[ROWS]], 512]
// CHECK: megakernel.barrier <{{cluster|grid}}>
// CHECK-NEXT: megakernel.phase {
// CHECK-NEXT: megakernel.tile ins(%{{.*}} = %[[Y]]
// CHECK-NOT: megakernel.barrier
#row = affine_map<(i, j) -> (i)>
#both = affine_map<(i, j) -> (i, j)>
#swapped = affine_map<(i, j) -> (j, i)>
megakernel.step @softmax(%x: tensor<256x512xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<256x512xf32> {megakernel.role = #megakernel.role<output>},
        tensor<512xf32> {megakernel.role = #megakernel.role<output>}) {
  %sum = megakernel.fused(%a = %x : tensor<256x512xf32>) -> tensor<256xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<256xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<256xf32>) -> tensor<256xf32>
    %r = linalg.generic {indexing_maps = [#both, #row], iterator_types = ["parallel", "reduction"]}
        ins(%a : tensor<256x512xf32>) outs(%f : tensor<256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %s = arith.addf %in, %out : f32
      linalg.yield %s : f32
    } -> tensor<256xf32>
    megakernel.yield %r : tensor<256xf32>
  }
  %y = megakernel.fused(%a = %x : tensor<256x512xf32>, %b = %sum : tensor<256xf32>) -> tensor<256x512xf32> {
    %e = tensor.empty() : tensor<256x512xf32>
    %r = linalg.generic {indexing_maps = [#both, #row, #both], iterator_types = ["parallel", "parallel"]}
        ins(%a, %b : tensor<256x512xf32>, tensor<256xf32>) outs(%e : tensor<256x512xf32>) {
    ^bb0(%in: f32, %total: f32, %out: f32):
      %q = arith.divf %in, %total : f32
      linalg.yield %q : f32
    } -> tensor<256x512xf32>
    megakernel.yield %r : tensor<256x512xf32>
  }
  %columns = megakernel.fused(%a = %y : tensor<256x512xf32>) -> tensor<512xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<512xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<512xf32>) -> tensor<512xf32>
    %r = linalg.generic {indexing_maps = [#swapped, #row], iterator_types = ["parallel", "reduction"]}
        ins(%a : tensor<256x512xf32>) outs(%f : tensor<512xf32>) {
    ^bb0(%in: f32, %out: f32):
      %s = arith.addf %in, %out : f32
      linalg.yield %s : f32
    } -> tensor<512xf32>
    megakernel.yield %r : tensor<512xf32>
  }
  megakernel.return %y, %columns : tensor<256x512xf32>, tensor<512xf32>
}
