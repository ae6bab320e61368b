// What a step keeps in shared memory is staged again in each step of a launch, and once in each.
// RUN: tk-opt %s --tk-keep-operands --tk-prefetch-inputs --convert-megakernel-to-gpu=separate-phases=0 | FileCheck %s

// CHECK: scf.while
// The weights, while the step before ends: they are written by none.
// CHECK: vector.store {{.*}} : memref<32x72xbf16, #gpu.address_space<workgroup>>
// CHECK: ld.acquire.gpu
// CHECK: nvvm.mma.sync
// CHECK-NOT: vector.store {{.*}} : memref<32x72xbf16, #gpu.address_space<workgroup>>
// CHECK: nvvm.ldmatrix
// CHECK: scf.condition
module attributes {megakernel.manifest = "{}"} {
  megakernel.kernel @same(%x: memref<32x32xbf16> {megakernel.role = #megakernel.role<batch>},
      %d: memref<32x64xbf16> {megakernel.role = #megakernel.role<batch>},
      %w: memref<32x64xbf16> {megakernel.role = #megakernel.role<state>},
      %y: memref<32x64xf32> {megakernel.role = #megakernel.role<output>},
      %z: memref<32x32xf32> {megakernel.role = #megakernel.role<output>})
      attributes {grid = 4 : i64, cluster = 1 : i64, threads = 256 : i64, target = "sm_90a"} {
    megakernel.phase {
      megakernel.tile ins(%a = %x : memref<32x32xbf16>, %b = %w : memref<32x64xbf16>)
          outs(%y : memref<32x64xf32>) sizes [16, 64, 32] {
        %zero = arith.constant 0.0 : f32
        %e = tensor.empty() : tensor<32x64xf32>
        %f = linalg.fill ins(%zero : f32) outs(%e : tensor<32x64xf32>) -> tensor<32x64xf32>
        %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>,
                                              affine_map<(m, n, k) -> (m, n)>],
                             iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%a, %b : tensor<32x32xbf16>, tensor<32x64xbf16>) outs(%f : tensor<32x64xf32>) {
        ^bb0(%i: bf16, %j: bf16, %o: f32):
          %left = arith.extf %i : bf16 to f32
          %right = arith.extf %j : bf16 to f32
          %p = arith.mulf %left, %right : f32
          %s = arith.addf %p, %o : f32
          linalg.yield %s : f32
        } -> tensor<32x64xf32>
        megakernel.yield %r : tensor<32x64xf32>
      }
    }
    megakernel.phase {
      megakernel.tile ins(%a = %d : memref<32x64xbf16>, %b = %w : memref<32x64xbf16>)
          outs(%z : memref<32x32xf32>) sizes [16, 32, 64] {
        %zero = arith.constant 0.0 : f32
        %e = tensor.empty() : tensor<32x32xf32>
        %f = linalg.fill ins(%zero : f32) outs(%e : tensor<32x32xf32>) -> tensor<32x32xf32>
        %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
                                              affine_map<(m, n, k) -> (m, n)>],
                             iterator_types = ["parallel", "parallel", "reduction"]}
            ins(%a, %b : tensor<32x64xbf16>, tensor<32x64xbf16>) outs(%f : tensor<32x32xf32>) {
        ^bb0(%i: bf16, %j: bf16, %o: f32):
          %left = arith.extf %i : bf16 to f32
          %right = arith.extf %j : bf16 to f32
          %p = arith.mulf %left, %right : f32
          %s = arith.addf %p, %o : f32
          linalg.yield %s : f32
        } -> tensor<32x32xf32>
        megakernel.yield %r : tensor<32x32xf32>
      }
    }
    megakernel.repeat <grid>
    megakernel.return
  }
}
