// RUN: tk-opt %s --convert-megakernel-to-gpu --canonicalize | FileCheck %s

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>

// The rows of a run along k, which ldmatrix reads as tf32 fragments are; those of b run along n, with 32 bytes between
// them. Three products of parts start at zero, and a float32 addition takes their sum in. A sum that is not finite is
// computed again in float32.
// CHECK: gpu.func @product
// CHECK-DAG: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK-DAG: %[[HALF:.*]] = arith.constant 4096 : i32
// CHECK-DAG: %[[MASK:.*]] = arith.constant -8192 : i32
// CHECK-DAG: memref.view %{{.*}} to memref<16x12xf32, #gpu.address_space<workgroup>>
// CHECK-DAG: memref.view %{{.*}} to memref<8x16xf32, #gpu.address_space<workgroup>>
// CHECK: gpu.barrier
// CHECK: nvvm.ldmatrix
// CHECK: %[[BITS:.*]] = llvm.extractvalue
// CHECK: %[[RAISED:.*]] = arith.addi %[[BITS]], %[[HALF]] : i32
// CHECK: %[[HIGH:.*]] = arith.andi %[[RAISED]], %[[MASK]] : i32
// CHECK: arith.subf
// CHECK: %[[FIRST:.*]] = nvvm.mma.sync {{.*}}C[%[[ZERO]], %[[ZERO]], %[[ZERO]], %[[ZERO]]]{{.*}}multiplicandAPtxType = #nvvm.mma_type<tf32>
// CHECK: llvm.extractvalue %[[FIRST]][0]
// CHECK: %[[SECOND:.*]] = nvvm.mma.sync A[%[[HIGH]],
// CHECK: llvm.extractvalue %[[SECOND]][0]
// CHECK: %[[THIRD:.*]] = nvvm.mma.sync A[%[[HIGH]],
// CHECK: %[[PRODUCT:.*]] = llvm.extractvalue %[[THIRD]][0]
// CHECK: arith.addf %[[PRODUCT]], %[[ZERO]] : f32
// CHECK: %[[MARK:.*]] = llvm.intr.fma(%{{.*}}, %[[ZERO]], %{{.*}})
// CHECK: %[[FINITE:.*]] = arith.cmpf oeq, %{{.*}}, %[[ZERO]] : f32
// CHECK: scf.if %[[FINITE]]
// CHECK: else
// CHECK: scf.for
// CHECK: llvm.intr.fma
// CHECK: gpu.return
megakernel.kernel @product(%x: memref<16x8xf32> {megakernel.role = #megakernel.role<batch>},
                           %w: memref<8x8xf32> {megakernel.role = #megakernel.role<state>},
                           %y: memref<16x8xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_80", shared_bytes = 4096 : i64,
                fp32 = #megakernel.fp32<tf32x3>} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<16x8xf32>, %b = %w : memref<8x8xf32>) outs(%y : memref<16x8xf32>)
        sizes [16, 8, 8] {
      %zero = arith.constant dense<0.0> : tensor<16x8xf32>
      %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %b : tensor<16x8xf32>, tensor<8x8xf32>) outs(%zero : tensor<16x8xf32>) {
      ^bb0(%in: f32, %in2: f32, %out: f32):
        %p = arith.mulf %in, %in2 : f32
        %s = arith.addf %p, %out : f32
        linalg.yield %s : f32
      } -> tensor<16x8xf32>
      megakernel.yield %r : tensor<16x8xf32>
    }
  }
  megakernel.return
}
