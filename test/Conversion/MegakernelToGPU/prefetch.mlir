// What is prefetched is brought in between a CTA's arrival at the barrier and its wait; the rest after it.
// RUN: tk-opt %s --convert-megakernel-to-gpu | FileCheck %s

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>

// CHECK: gpu.func @product
// CHECK: atom.add.release.gpu
// CHECK-NOT: ld.acquire
// CHECK: vector.load %arg1[
// CHECK: vector.store %{{.*}} : memref<{{.*}}, #gpu.address_space<workgroup>>
// CHECK-NOT: vector.load %arg1[
// CHECK: ld.acquire.gpu
// CHECK: gpu.barrier
// CHECK-NOT: vector.load %arg1[
// CHECK: vector.store %{{.*}} : memref<{{.*}}, #gpu.address_space<workgroup>>
// CHECK: gpu.return
megakernel.kernel @product(%x: memref<16x16xf32> {megakernel.role = #megakernel.role<batch>},
                           %w: memref<16x16xf32> {megakernel.role = #megakernel.role<state>},
                           %y: memref<16x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 2 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a", shared_bytes = 8192 : i64,
                arena_bytes = 1024 : i64} {
  %h = megakernel.buffer {offset = 0 : i64} : memref<16x16xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<16x16xf32>) outs(%h : memref<16x16xf32>) sizes [8, 16] {
      megakernel.yield %a : tensor<16x16xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    megakernel.tile ins(%a = %h : memref<16x16xf32>, %b = %w : memref<16x16xf32>) outs(%y : memref<16x16xf32>)
        sizes [16, 16, 16] attributes {prefetched = array<i64: 1>} {
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
