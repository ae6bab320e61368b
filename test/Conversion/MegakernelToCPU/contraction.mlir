// RUN: tk-opt %s --convert-megakernel-to-cpu --canonicalize | FileCheck %s --check-prefixes=CHECK,WIDE
// RUN: tk-opt %s --convert-megakernel-to-cpu=vector-bits=256 --canonicalize | FileCheck %s --check-prefixes=CHECK,NARROW

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>

// Both operands are packed as float32 into the worker's scratch and multiplied there, registers full of columns.
// CHECK-LABEL: func.func @product_worker
// CHECK-SAME: (%[[A:.*]]: memref<8x16xf32>
// CHECK: %[[SCRATCH:.*]] = memref.alloca() {alignment = 64 : i64} : memref<{{.*}}xi8>
// CHECK-DAG: %[[PA:.*]] = memref.view %[[SCRATCH]]{{.*}} to memref<8x16xf32>
// CHECK-DAG: %[[PB:.*]] = memref.view %[[SCRATCH]]{{.*}} to memref<16x32xf32>
// CHECK: vector.store %{{.*}}, %[[PA]]
// CHECK: vector.store %{{.*}}, %[[PB]]
// WIDE: vector.load %[[PB]]{{.*}} memref<16x32xf32>, vector<16xf32>
// NARROW: vector.load %[[PB]]{{.*}} memref<16x32xf32>, vector<8xf32>
// WIDE: vector.fma %{{.*}} : vector<16xf32>
// NARROW: vector.fma %{{.*}} : vector<8xf32>
megakernel.kernel @product(%x: memref<8x16xf32> {megakernel.role = #megakernel.role<batch>},
                           %w: memref<16x32xf32> {megakernel.role = #megakernel.role<state>},
                           %y: memref<8x32xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8x16xf32>, %b = %w : memref<16x32xf32>) outs(%y : memref<8x32xf32>)
        sizes [8, 32, 16] {
      %zero = arith.constant dense<0.0> : tensor<8x32xf32>
      %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %b : tensor<8x16xf32>, tensor<16x32xf32>) outs(%zero : tensor<8x32xf32>) {
      ^bb0(%in: f32, %in2: f32, %out: f32):
        %p = arith.mulf %in, %in2 : f32
        %s = arith.addf %p, %out : f32
        linalg.yield %s : f32
      } -> tensor<8x32xf32>
      megakernel.yield %r : tensor<8x32xf32>
    }
  }
  megakernel.return
}
