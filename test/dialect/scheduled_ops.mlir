// Every op of the scheduled form prints what it parses: in its own syntax, in the generic one, and through bytecode.
// RUN: tk-opt %s | tk-opt | FileCheck %s
// RUN: tk-opt %s --mlir-print-op-generic | tk-opt | FileCheck %s
// RUN: tk-opt %s --emit-bytecode | tk-opt | FileCheck %s

// CHECK-LABEL: megakernel.kernel @every_op(
// CHECK-SAME: %[[W:.*]]: memref<4x8xf32> {megakernel.role = #megakernel.role<state>}
// CHECK-SAME: %[[N:.*]]: memref<4x8xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64}
// CHECK-SAME: attributes {arena_bytes = 512 : i64, cluster = 2 : i64, grid = 4 : i64, shared_bytes = 64 : i64,
// CHECK-SAME: target = "sm_90a", threads = 64 : i64} {
megakernel.kernel @every_op(%w: memref<4x8xf32> {megakernel.role = #megakernel.role<state>},
                            %n: memref<4x8xf32> {megakernel.role = #megakernel.role<new_state>,
                                                 megakernel.updates = 0 : i64})
    attributes {grid = 4 : i64, cluster = 2 : i64, threads = 64 : i64, target = "sm_90a", shared_bytes = 64 : i64,
                arena_bytes = 512 : i64} {
  // CHECK-NEXT: %[[B:.*]] = megakernel.buffer {offset = 256 : i64} : memref<32xf32>
  %b = megakernel.buffer {offset = 256 : i64} : memref<32xf32>
  // CHECK-NEXT: %[[LATER:.*]] = megakernel.buffer : memref<f64>
  %later = megakernel.buffer : memref<f64>
  // CHECK-NEXT: %[[FLAT:.*]] = memref.collapse_shape %[[W]]
  %flat = memref.collapse_shape %w [[0, 1]] : memref<4x8xf32> into memref<32xf32>
  // CHECK-NEXT: megakernel.phase attributes {note = "kept"} {
  megakernel.phase attributes {note = "kept"} {
    // CHECK-NEXT: megakernel.tile ins(%[[A:.*]] = %[[FLAT]] : memref<32xf32>)
    // CHECK-SAME: outs(%[[B]] : memref<32xf32>) sizes [16] first_cta 3 attributes {note = "kept"} {
    megakernel.tile ins(%a = %flat : memref<32xf32>) outs(%b : memref<32xf32>) sizes [16] first_cta 3
        attributes {note = "kept"} {
      // CHECK-NEXT: megakernel.yield %[[A]] : tensor<32xf32>
      megakernel.yield %a : tensor<32xf32>
    }
    // A scalar has no dimension to cut.
    // CHECK: megakernel.tile ins() outs(%[[LATER]] : memref<f64>) sizes [] {
    megakernel.tile ins() outs(%later : memref<f64>) sizes [] {
      %c = arith.constant dense<1.0> : tensor<f64>
      megakernel.yield %c : tensor<f64>
    }
  }
  // CHECK: megakernel.barrier <cta>
  megakernel.barrier <cta>
  // CHECK-NEXT: megakernel.barrier <cluster>
  megakernel.barrier <cluster>
  // CHECK-NEXT: megakernel.barrier <grid>
  megakernel.barrier <grid>
  // CHECK-NEXT: megakernel.phase {
  // CHECK-NEXT: }
  megakernel.phase {
  }
  // CHECK-NEXT: %[[BACK:.*]] = memref.expand_shape %[[B]]
  %back = memref.expand_shape %b [[0, 1]] output_shape [4, 8] : memref<32xf32> into memref<4x8xf32>
  // CHECK-NEXT: megakernel.commit %[[BACK]] to %[[N]] : memref<4x8xf32>
  megakernel.commit %back to %n : memref<4x8xf32>
  // CHECK-NEXT: megakernel.repeat <grid>
  megakernel.repeat <grid>
  // CHECK-NEXT: megakernel.return
  megakernel.return
}
