// How element types lie in memory.
// RUN: tk-opt %s --convert-megakernel-to-cpu --canonicalize --split-input-file | FileCheck %s

#id = affine_map<(d0) -> (d0)>

// A bool is a byte, also behind a reshape; any byte but zero is true.
// CHECK-LABEL: func.func @bools_worker
// CHECK-SAME: (%[[X:.*]]: memref<2x4xi8>, %[[Y:.*]]: memref<8xi8>
// CHECK: %[[FLAT:.*]] = memref.collapse_shape %[[X]] {{.*}} : memref<2x4xi8> into memref<8xi8>
// CHECK: %[[BYTES:.*]] = vector.load %[[FLAT]]{{.*}} vector<8xi8>
// CHECK: %[[TRUE:.*]] = arith.cmpi ne, %[[BYTES]], %{{.*}} : vector<8xi8>
// CHECK: %[[NOT:.*]] = arith.xori %[[TRUE]], %{{.*}} : vector<8xi1>
// CHECK: %[[OUT:.*]] = arith.extui %[[NOT]] : vector<8xi1> to vector<8xi8>
// CHECK: vector.store %[[OUT]], %[[Y]]
megakernel.kernel @bools(%x: memref<2x4xi1> {megakernel.role = #megakernel.role<batch>},
                         %y: memref<8xi1> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
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

// -----

#id = affine_map<(d0) -> (d0)>

// A bfloat16 is a 16-bit integer, widened by a shift and rounded by integer arithmetic, with a case for NaN.
// CHECK-LABEL: func.func @bfloat16_worker
// CHECK-SAME: (%[[X:.*]]: memref<8xi16>, %[[Y:.*]]: memref<8xi16>
// CHECK-NOT: bf16
// CHECK: %[[BITS:.*]] = vector.load %[[X]]{{.*}} vector<8xi16>
// CHECK: %[[WIDE:.*]] = arith.extui %[[BITS]] : vector<8xi16> to vector<8xi32>
// CHECK: arith.shli %[[WIDE]]
// CHECK: arith.addf %{{.*}}, %{{.*}} : vector<8xf32>
// CHECK: %[[NARROW:.*]] = arith.trunci %{{.*}} : vector<8xi32> to vector<8xi16>
// CHECK: %[[OUT:.*]] = arith.select %{{.*}}, %{{.*}}, %[[NARROW]] : vector<8xi1>, vector<8xi16>
// CHECK: vector.store %[[OUT]], %[[Y]]
megakernel.kernel @bfloat16(%x: memref<8xbf16> {megakernel.role = #megakernel.role<batch>},
                            %y: memref<8xbf16> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8xbf16>) outs(%y : memref<8xbf16>) sizes [8] {
      %e = tensor.empty() : tensor<8xbf16>
      %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
          ins(%a : tensor<8xbf16>) outs(%e : tensor<8xbf16>) {
      ^bb0(%in: bf16, %out: bf16):
        %w = arith.extf %in : bf16 to f32
        %s = arith.addf %w, %w : f32
        %n = arith.truncf %s : f32 to bf16
        linalg.yield %n : bf16
      } -> tensor<8xbf16>
      megakernel.yield %r : tensor<8xbf16>
    }
  }
  megakernel.return
}
