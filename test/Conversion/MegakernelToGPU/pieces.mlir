// Each part of a concatenation is computed on its own, by warps of its own: nothing chooses among all parts.
// RUN: tk-opt %s --convert-megakernel-to-gpu --canonicalize | FileCheck %s

// CHECK: gpu.func @step(%[[A:.*]]: memref<4x32xf32>, %[[B:.*]]: memref<4x32xf32>, %[[Y:.*]]: memref<4x64xf32>
// CHECK-NOT: arith.select
// CHECK: %[[FIRST:.*]] = {{.*}}load %[[A]]
// CHECK-NOT: arith.select
// CHECK: store %[[FIRST]], %[[Y]]
// CHECK: %[[SECOND:.*]] = {{.*}}load %[[B]]
// CHECK-NOT: arith.select
// CHECK: store %[[SECOND]], %[[Y]]
// CHECK: gpu.return
megakernel.kernel @step(%a: memref<4x32xf32> {megakernel.role = #megakernel.role<batch>},
                        %b: memref<4x32xf32> {megakernel.role = #megakernel.role<batch>},
                        %y: memref<4x64xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 64 : i64, target = "sm_90a", arena_bytes = 0 : i64,
                shared_bytes = 0 : i64} {
  megakernel.phase {
    megakernel.tile ins(%i = %a : memref<4x32xf32>, %j = %b : memref<4x32xf32>) outs(%y : memref<4x64xf32>)
        sizes [4, 64] {
      %e = tensor.empty() : tensor<4x64xf32>
      %p = tensor.insert_slice %i into %e[0, 0] [4, 32] [1, 1] : tensor<4x32xf32> into tensor<4x64xf32>
      %q = tensor.insert_slice %j into %p[0, 32] [4, 32] [1, 1] : tensor<4x32xf32> into tensor<4x64xf32>
      megakernel.yield %q : tensor<4x64xf32>
    }
  }
  megakernel.return
}
