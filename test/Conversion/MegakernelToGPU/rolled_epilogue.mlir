// A long epilogue is a loop over the results of a thread, which carries what the next ones read: each of 32 threads has
// eight runs of four results, and an exponential for each.
// RUN: tk-opt %s --convert-megakernel-to-gpu | FileCheck %s

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>

// CHECK: gpu.func @product
// CHECK: %[[FIRST:.*]] = vector.load %arg2[
// CHECK: nvvm.mma.sync
// CHECK: scf.for %{{.*}} = %{{.*}} to %{{.*}} step %{{.*}} iter_args(%[[SIDE:.*]] = %[[FIRST]]) -> (vector<4xf32>)
// CHECK: %[[NEXT:.*]] = vector.load %arg2[
// CHECK: math.exp %[[SIDE]]
// CHECK: vector.store %{{.*}}, %arg3[
// CHECK: scf.yield %[[NEXT]]
// CHECK-NOT: vector.store %{{.*}}, %arg3[
// CHECK: gpu.return
megakernel.kernel @product(%x: memref<32x16xbf16> {megakernel.role = #megakernel.role<batch>},
                           %w: memref<16x32xbf16> {megakernel.role = #megakernel.role<state>},
                           %m: memref<32x32xf32> {megakernel.role = #megakernel.role<state>},
                           %y: memref<32x32xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a", shared_bytes = 16384 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<32x16xbf16>, %b = %w : memref<16x32xbf16>, %s = %m : memref<32x32xf32>)
        outs(%y : memref<32x32xf32>) sizes [32, 32, 16] {
      %zero = arith.constant dense<0.0> : tensor<32x32xf32>
      %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %b : tensor<32x16xbf16>, tensor<16x32xbf16>) outs(%zero : tensor<32x32xf32>) {
      ^bb0(%in: bf16, %in2: bf16, %out: f32):
        %l = arith.extf %in : bf16 to f32
        %q = arith.extf %in2 : bf16 to f32
        %p = arith.mulf %l, %q : f32
        %t = arith.addf %p, %out : f32
        linalg.yield %t : f32
      } -> tensor<32x32xf32>
      %empty = tensor.empty() : tensor<32x32xf32>
      %e = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%r, %s : tensor<32x32xf32>, tensor<32x32xf32>) outs(%empty : tensor<32x32xf32>) {
      ^bb0(%in: f32, %side: f32, %out: f32):
        %g = math.exp %side : f32
        %t = arith.mulf %g, %in : f32
        linalg.yield %t : f32
      } -> tensor<32x32xf32>
      megakernel.yield %e : tensor<32x32xf32>
    }
  }
  megakernel.return
}
