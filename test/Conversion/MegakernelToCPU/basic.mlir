// RUN: tk-opt %s --convert-megakernel-to-cpu --canonicalize --split-input-file | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#bias = affine_map<(d0, d1) -> (d1)>

// A worker walks every tile whose number is its own modulo the number of workers; a row is one vector; the last tile
// is cut to the domain; a barrier is a call. Callers' tensors are aligned to their elements only.
// CHECK-LABEL: func.func @step_worker
// CHECK-SAME: (%[[X:.*]]: memref<6x8xf32>, %[[BIAS:.*]]: memref<8xf32>, %[[Y:.*]]: memref<6x8xf32>, %[[WORKSPACE:.*]]: memref<256xi8>, %[[WORKER:.*]]: index, %[[WORKERS:.*]]: index, %[[CONTEXT:.*]]: !llvm.ptr, %[[BARRIER:.*]]: !llvm.ptr)
// CHECK-SAME: attributes {megakernel.entry = "step"}
// CHECK: %[[VIEW:.*]] = memref.view %[[WORKSPACE]]
// CHECK: %[[H:.*]] = memref.expand_shape %[[VIEW]]
// CHECK: scf.for %[[TILE:.*]] = %[[WORKER]] to %{{.*}} step %[[WORKERS]] {
// CHECK: %[[LEFT:.*]] = arith.subi %c6, %{{.*}} : index
// CHECK: %[[ROWS:.*]] = arith.minui %[[LEFT]], %c4 : index
// CHECK: scf.for %{{.*}} = %c0 to %[[ROWS]]
// CHECK: %[[A:.*]] = vector.load %[[X]][%[[ROW:.*]], %c0] {alignment = 4 : i64} : memref<6x8xf32>, vector<8xf32>
// CHECK: %[[B:.*]] = vector.load %[[BIAS]][%c0] {alignment = 4 : i64} : memref<8xf32>, vector<8xf32>
// CHECK: %[[S:.*]] = arith.addf %[[A]], %[[B]] : vector<8xf32>
// CHECK: vector.store %[[S]], %[[H]][%[[ROW]], %c0]
// CHECK: llvm.call %[[BARRIER]](%[[CONTEXT]])
// CHECK: %[[FIRST:.*]] = arith.remui %{{.*}}, %[[WORKERS]] : index
// CHECK: scf.for %{{.*}} = %[[FIRST]] to %{{.*}} step %[[WORKERS]] {
// CHECK: vector.store %{{.*}}, %[[Y]]
// CHECK: return
megakernel.kernel @step(%x: memref<6x8xf32> {megakernel.role = #megakernel.role<batch>},
                        %b: memref<8xf32> {megakernel.role = #megakernel.role<batch>},
                        %y: memref<6x8xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, target = "cpu", arena_bytes = 256 : i64} {
  %buffer = megakernel.buffer {offset = 0 : i64} : memref<48xf32>
  %h = memref.expand_shape %buffer [[0, 1]] output_shape [6, 8] : memref<48xf32> into memref<6x8xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<6x8xf32>, %c = %b : memref<8xf32>) outs(%h : memref<6x8xf32>) sizes [4, 8] {
      %e = tensor.empty() : tensor<6x8xf32>
      %r = linalg.generic {indexing_maps = [#id, #bias, #id], iterator_types = ["parallel", "parallel"]}
          ins(%a, %c : tensor<6x8xf32>, tensor<8xf32>) outs(%e : tensor<6x8xf32>) {
      ^bb0(%in: f32, %in2: f32, %out: f32):
        %s = arith.addf %in, %in2 : f32
        linalg.yield %s : f32
      } -> tensor<6x8xf32>
      megakernel.yield %r : tensor<6x8xf32>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    megakernel.tile ins(%a = %h : memref<6x8xf32>) outs(%y : memref<6x8xf32>) sizes [4, 8] first_cta 1 {
      megakernel.yield %a : tensor<6x8xf32>
    }
  }
  megakernel.return
}

// -----

// What is no kernel stays.
// CHECK-LABEL: func.func @bystander
// CHECK-NEXT: return
func.func @bystander() {
  return
}
