// Of inputs that are all there, the product is computed between a CTA's arrival at the barrier and its wait; behind the
// wait its results are written.
// RUN: tk-opt %s --convert-megakernel-to-gpu | FileCheck %s

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>

// CHECK: gpu.func @product
// CHECK: atom.add.release.gpu
// CHECK-NOT: ld.acquire
// CHECK: vector.load %arg0[
// CHECK: vector.load %arg1[
// CHECK: vector.fma
// CHECK-NOT: store {{.*}}%arg2[
// CHECK: ld.acquire.gpu
// CHECK-NOT: load %arg
// CHECK-NOT: vector.fma
// CHECK: store %{{.*}}, %arg2[
// CHECK: gpu.return
megakernel.kernel @product(%x: memref<16x16xf32> {megakernel.role = #megakernel.role<batch>},
                           %w: memref<16x16xf32> {megakernel.role = #megakernel.role<batch>},
                           %y: memref<16x16xf32> {megakernel.role = #megakernel.role<output>},
                           %z: memref<16x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 2 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a", shared_bytes = 8192 : i64,
                arena_bytes = 0 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<16x16xf32>) outs(%z : memref<16x16xf32>) sizes [8, 16] {
      megakernel.yield %a : tensor<16x16xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<16x16xf32>, %b = %w : memref<16x16xf32>) outs(%y : memref<16x16xf32>)
        sizes [16, 16, 16] attributes {prefetched = array<i64: 0, 1>} {
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
  megakernel.return
}
