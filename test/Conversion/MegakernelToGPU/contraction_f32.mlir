// RUN: tk-opt %s --convert-megakernel-to-gpu --canonicalize | FileCheck %s

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>

// float32 is multiplied in float32, never on matrix units; the barrier of several clusters is one counter for all.
// CHECK: gpu.func @product
// CHECK: memref.view %{{.*}} to memref<16x{{.*}}xf32, #gpu.address_space<workgroup>>
// CHECK-NOT: nvvm.mma
// CHECK: vector.fma {{.*}}xf32>
// CHECK-NOT: nvvm.mma
// CHECK: llvm.inline_asm {{.*}}atom.add.release.gpu
// CHECK: gpu.return
megakernel.kernel @product(%x: memref<16x16xf32> {megakernel.role = #megakernel.role<batch>},
                           %w: memref<16x16xf32> {megakernel.role = #megakernel.role<state>},
                           %y: memref<16x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 2 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_80", shared_bytes = 4096 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<16x16xf32>, %b = %w : memref<16x16xf32>) outs(%y : memref<16x16xf32>)
        sizes [16, 16, 16] {
      %zero = arith.constant dense<0.0> : tensor<16x16xf32>
      %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %b : tensor<16x16xf32>, tensor<16x16xf32>) outs(%zero : tensor<16x16xf32>) {
      ^bb0(%in: f32, %in2: f32, %out: f32):
        %p = arith.mulf %in, %in2 : f32
        %s = arith.addf %p, %out : f32
        linalg.yield %s : f32
      } -> tensor<16x16xf32>
      megakernel.yield %r : tensor<16x16xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.return
}
