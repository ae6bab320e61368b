// RUN: tk-opt %s --convert-megakernel-to-gpu --canonicalize | FileCheck %s

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>

// Four chunks of k: the first is in shared memory and the second on its way when the loop starts. In the loop a chunk
// goes to shared memory, the next one is loaded and the one before is multiplied, with one barrier. float32 behind a
// bfloat16 operand comes in by 16 bytes, four elements a thread.
// CHECK: gpu.func @product
// CHECK: vector.load %{{.*}} : memref<32x128xf32>, vector<4xf32>
// CHECK: vector.store %{{.*}} : memref<{{.*}}xbf16, #gpu.address_space<workgroup>>, vector<4xbf16>
// CHECK: vector.load %{{.*}} : memref<32x128xf32>, vector<4xf32>
// CHECK: gpu.barrier
// CHECK: scf.for
// CHECK-NOT: gpu.barrier
// CHECK: arith.truncf %{{.*}} : vector<4xf32> to vector<4xbf16>
// CHECK: vector.store
// CHECK: vector.load %{{.*}} : memref<32x128xf32>, vector<4xf32>
// CHECK: nvvm.mma.sync
// CHECK: gpu.barrier
// CHECK-NEXT: scf.yield
// The last two chunks: a barrier lies between them, and one behind.
// CHECK: vector.store
// CHECK: nvvm.mma.sync
// CHECK: gpu.barrier
// CHECK: nvvm.mma.sync
// CHECK: gpu.barrier
// CHECK-NOT: nvvm.mma.sync
// CHECK: gpu.return
megakernel.kernel @product(%x: memref<32x128xf32> {megakernel.role = #megakernel.role<batch>},
                           %w: memref<128x32xbf16> {megakernel.role = #megakernel.role<state>},
                           %y: memref<32x32xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 128 : i64, target = "sm_90a", shared_bytes = 40000 : i64} {
  megakernel.phase {
    megakernel.tile ins(%f = %x : memref<32x128xf32>, %b = %w : memref<128x32xbf16>) outs(%y : memref<32x32xf32>)
        sizes [32, 32, 32] {
      %e = tensor.empty() : tensor<32x128xbf16>
      %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%f : tensor<32x128xf32>) outs(%e : tensor<32x128xbf16>) {
      ^bb0(%in: f32, %out: bf16):
        %t = arith.truncf %in : f32 to bf16
        linalg.yield %t : bf16
      } -> tensor<32x128xbf16>
      %zero = arith.constant dense<0.0> : tensor<32x32xf32>
      %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %b : tensor<32x128xbf16>, tensor<128x32xbf16>) outs(%zero : tensor<32x32xf32>) {
      ^bb0(%in: bf16, %in2: bf16, %out: f32):
        %l = arith.extf %in : bf16 to f32
        %q = arith.extf %in2 : bf16 to f32
        %p = arith.mulf %l, %q : f32
        %s = arith.addf %p, %out : f32
        linalg.yield %s : f32
      } -> tensor<32x32xf32>
      megakernel.yield %r : tensor<32x32xf32>
    }
  }
  megakernel.return
}
