// Rows that an index picks are not there before the barrier because the index is: the table is made by the phase before.
// RUN: tk-opt %s --convert-megakernel-to-gpu | FileCheck %s

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>

// CHECK: gpu.func @product
// CHECK: %[[TABLE:.*]] = memref.view %arg{{[0-9]+}}{{.*}} to memref<32x16xf32>
// CHECK: atom.add.release.gpu
// CHECK-NOT: load %[[TABLE]]
// CHECK: ld.acquire.gpu
// CHECK: load %[[TABLE]]
// CHECK: gpu.return
megakernel.kernel @product(%x: memref<32x16xf32> {megakernel.role = #megakernel.role<batch>},
                           %ids: memref<16xi64> {megakernel.role = #megakernel.role<batch>},
                           %w: memref<16x16xf32> {megakernel.role = #megakernel.role<state>},
                           %y: memref<16x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 2 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a", shared_bytes = 8192 : i64,
                arena_bytes = 2048 : i64} {
  %h = megakernel.buffer {offset = 0 : i64} : memref<32x16xf32>
  megakernel.phase {
    megakernel.tile ins(%in = %x : memref<32x16xf32>) outs(%h : memref<32x16xf32>) sizes [16, 16] {
      megakernel.yield %in : tensor<32x16xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    megakernel.tile ins(%table = %h : memref<32x16xf32>, %i = %ids : memref<16xi64>, %v = %w : memref<16x16xf32>)
        outs(%y : memref<16x16xf32>) sizes [16, 16, 16] attributes {prefetched = array<i64: 1, 2>} {
      %e = tensor.empty() : tensor<16x16xf32>
      %rows = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>],
                              iterator_types = ["parallel", "parallel"]}
          ins(%i : tensor<16xi64>) outs(%e : tensor<16x16xf32>) {
      ^bb0(%id: i64, %out: f32):
        %row = arith.index_cast %id : i64 to index
        %column = linalg.index 1 : index
        %picked = tensor.extract %table[%row, %column] : tensor<32x16xf32>
        linalg.yield %picked : f32
      } -> tensor<16x16xf32>
      %zero = arith.constant dense<0.0> : tensor<16x16xf32>
      %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%rows, %v : tensor<16x16xf32>, tensor<16x16xf32>) outs(%zero : tensor<16x16xf32>) {
      ^bb0(%in: f32, %in2: f32, %out: f32):
        %p = arith.mulf %in, %in2 : f32
        %s = arith.addf %p, %out : f32
        linalg.yield %s : f32
      } -> tensor<16x16xf32>
      megakernel.yield %r : tensor<16x16xf32>
    }
  }
  megakernel.return
}
