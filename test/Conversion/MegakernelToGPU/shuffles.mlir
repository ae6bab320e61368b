// RUN: tk-opt %s --convert-megakernel-to-gpu --canonicalize | FileCheck %s

#row = affine_map<(d0, d1) -> (d0)>
#all = affine_map<(d0, d1) -> (d0, d1)>

// Sixteen rows for 256 threads: sixteen threads reduce a row of 64, four elements each, and meet in half a warp. All 32
// lanes take part, so the mask is full, and the clamp 0x101f cuts the warp into segments of sixteen. No shared memory.
// CHECK: gpu.func @sums
// CHECK-DAG: %[[ALL:.*]] = arith.constant -1 : i32
// CHECK-DAG: %[[CLAMP:.*]] = arith.constant 4127 : i32
// CHECK-DAG: %[[EIGHT:.*]] = arith.constant 8 : i32
// CHECK: nvvm.shfl.sync down %[[ALL]], %{{.*}}, %[[EIGHT]], %[[CLAMP]] : f32 -> f32
// CHECK-COUNT-3: nvvm.shfl.sync down
// CHECK-NOT: nvvm.shfl.sync
// CHECK-NOT: gpu.barrier
// CHECK: gpu.return

// Two rows: four warps have a part of each. They meet in shared memory after their shuffles,
// once: nothing else uses it before the kernel ends.
// CHECK: gpu.func @few
// CHECK-DAG: %[[WARP:.*]] = arith.constant 31 : i32
// CHECK-COUNT-5: nvvm.shfl.sync down %{{.*}}, %{{.*}}, %{{.*}}, %[[WARP]] : f32 -> f32
// CHECK: memref.store %{{.*}} : memref<{{.*}}xf32, #gpu.address_space<workgroup>>
// CHECK: gpu.barrier
// CHECK-COUNT-4: memref.load %{{.*}} : memref<{{.*}}xf32, #gpu.address_space<workgroup>>
// CHECK-NOT: gpu.barrier
// CHECK: gpu.return
megakernel.kernel @sums(%x: memref<16x64xf32> {megakernel.role = #megakernel.role<batch>},
                        %y: memref<16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 256 : i64, target = "sm_90a", shared_bytes = 4096 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<16x64xf32>) outs(%y : memref<16xf32>) sizes [16, 64] {
      %zero = arith.constant dense<0.0> : tensor<16xf32>
      %r = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
          ins(%a : tensor<16x64xf32>) outs(%zero : tensor<16xf32>) {
      ^bb0(%in: f32, %out: f32):
        %s = arith.addf %in, %out : f32
        linalg.yield %s : f32
      } -> tensor<16xf32>
      megakernel.yield %r : tensor<16xf32>
    }
  }
  megakernel.return
}

megakernel.kernel @few(%x: memref<2x1024xf32> {megakernel.role = #megakernel.role<batch>},
                       %y: memref<2xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 256 : i64, target = "sm_90a", shared_bytes = 4096 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<2x1024xf32>) outs(%y : memref<2xf32>) sizes [2, 1024] {
      %zero = arith.constant dense<0.0> : tensor<2xf32>
      %r = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
          ins(%a : tensor<2x1024xf32>) outs(%zero : tensor<2xf32>) {
      ^bb0(%in: f32, %out: f32):
        %s = arith.addf %in, %out : f32
        linalg.yield %s : f32
      } -> tensor<2xf32>
      megakernel.yield %r : tensor<2xf32>
    }
  }
  megakernel.return
}
