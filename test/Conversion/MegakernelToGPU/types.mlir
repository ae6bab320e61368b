// How element types lie in memory.
// RUN: tk-opt %s --convert-megakernel-to-gpu --canonicalize | FileCheck %s

#id = affine_map<(d0) -> (d0)>

// A bool is a byte, also behind a reshape; any byte but zero is true.
// CHECK: gpu.func @bools(%[[X:.*]]: memref<2x4xi8>, %[[Y:.*]]: memref<8xi8>
// CHECK: %[[FLAT:.*]] = memref.collapse_shape %[[X]] {{.*}} : memref<2x4xi8> into memref<8xi8>
// CHECK: %[[BYTE:.*]] = memref.load %[[FLAT]]{{.*}} : memref<8xi8>
// CHECK: %[[NOT:.*]] = arith.cmpi eq, %[[BYTE]], %{{.*}} : i8
// CHECK: %[[OUT:.*]] = arith.extui %[[NOT]] : i1 to i8
// CHECK: memref.store %[[OUT]], %[[Y]]{{.*}} : memref<8xi8>
megakernel.kernel @bools(%x: memref<2x4xi1> {megakernel.role = #megakernel.role<batch>},
                         %y: memref<8xi1> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a"} {
  %flat = memref.collapse_shape %x [[0, 1]] : memref<2x4xi1> into memref<8xi1>
  megakernel.phase {
    megakernel.tile ins(%a = %flat : memref<8xi1>) outs(%y : memref<8xi1>) sizes [8] {
      %true = arith.constant true
      %e = tensor.empty() : tensor<8xi1>
      %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
          ins(%a : tensor<8xi1>) outs(%e : tensor<8xi1>) {
      ^bb0(%in: i1, %out: i1):
        %n = arith.xori %in, %true : i1
        linalg.yield %n : i1
      } -> tensor<8xi1>
      megakernel.yield %r : tensor<8xi1>
    }
  }
  megakernel.return
}
