// RUN: tk-opt %s --convert-megakernel-to-gpu --canonicalize | FileCheck %s

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>

// bfloat16 operands are staged in shared memory as they are and multiplied by matrix units, with the clusters' barrier.
// CHECK: gpu.func @product
// CHECK-SAME: nvvm.cluster_dim = array<i32: 2, 1, 1>
// CHECK-DAG: memref.view %{{.*}} to memref<16x{{.*}}xbf16, #gpu.address_space<workgroup>>
// CHECK: gpu.barrier
// CHECK: nvvm.ldmatrix
// CHECK: nvvm.mma.sync {{.*}}shape = #nvvm.shape<m = 16, n = 8, k = 16>
// CHECK: nvvm.cluster.arrive
// CHECK: nvvm.cluster.wait
// CHECK: gpu.return
megakernel.kernel @product(%x: memref<16x16xbf16> {megakernel.role = #megakernel.role<batch>},
                           %w: memref<16x16xbf16> {megakernel.role = #megakernel.role<state>},
                           %y: memref<16x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 2 : i64, cluster = 2 : i64, threads = 32 : i64, target = "sm_90a", shared_bytes = 4096 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<16x16xbf16>, %b = %w : memref<16x16xbf16>) outs(%y : memref<16x16xf32>)
        sizes [16, 16, 16] {
      %zero = arith.constant dense<0.0> : tensor<16x16xf32>
      %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %b : tensor<16x16xbf16>, tensor<16x16xbf16>) outs(%zero : tensor<16x16xf32>) {
      ^bb0(%in: bf16, %in2: bf16, %out: f32):
        %l = arith.extf %in : bf16 to f32
        %q = arith.extf %in2 : bf16 to f32
        %p = arith.mulf %l, %q : f32
        %s = arith.addf %p, %out : f32
        linalg.yield %s : f32
      } -> tensor<16x16xf32>
      megakernel.yield %r : tensor<16x16xf32>
    }
  }
  megakernel.barrier <cluster>
  megakernel.return
}
