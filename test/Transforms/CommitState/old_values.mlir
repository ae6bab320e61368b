// New states that are old values of other states.
// RUN: tk-opt %s --tk-commit-state --split-input-file | FileCheck %s
// RUN: tk-opt %s --split-input-file \
// RUN:   --pass-pipeline='builtin.module(megakernel.kernel(tk-commit-state,tk-insert-barriers,tk-plan-buffers,tk-check-schedule))'

// A swap needs both old values before either output is written.
// CHECK-LABEL: megakernel.kernel @swap
// CHECK-SAME: (%[[A:.*]]: memref<4xf32> {{{.*}}}, %[[B:.*]]: memref<4xf32> {{{.*}}}, %[[NA:.*]]: memref<4xf32> {{{.*}}}, %[[NB:.*]]: memref<4xf32>
// CHECK-DAG: %[[OLDA:.*]] = megakernel.buffer
// CHECK-DAG: %[[OLDB:.*]] = megakernel.buffer
// CHECK: megakernel.phase {
// CHECK: megakernel.tile ins(%{{.*}} = %[[B]] : memref<4xf32>) outs(%[[OLDB]] : memref<4xf32>)
// CHECK: megakernel.tile ins(%{{.*}} = %[[A]] : memref<4xf32>) outs(%[[OLDA]] : memref<4xf32>)
// CHECK: megakernel.phase {
// CHECK: megakernel.tile ins(%{{.*}} = %[[OLDB]] : memref<4xf32>) outs(%[[NA]] : memref<4xf32>)
// CHECK: megakernel.tile ins(%{{.*}} = %[[OLDA]] : memref<4xf32>) outs(%[[NB]] : memref<4xf32>)
megakernel.kernel @swap(%a: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %b: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %na: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
    %nb: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 1 : i64})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.commit %b to %na : memref<4xf32>
  megakernel.commit %a to %nb : memref<4xf32>
  megakernel.return
}

// -----

// The previous value of a state is kept in another one: it is read before the state is updated.
// CHECK-LABEL: megakernel.kernel @previous
// CHECK-SAME: (%[[W:.*]]: memref<4xf32> {{{.*}}}, %[[P:.*]]: memref<4xf32> {{{.*}}}, %[[NW:.*]]: memref<4xf32> {{{.*}}}, %[[NP:.*]]: memref<4xf32>
// CHECK-NEXT: %[[BW:.*]] = megakernel.buffer
// CHECK-NEXT: megakernel.phase {
// CHECK-NEXT: megakernel.tile ins(%{{.*}} = %[[W]] : memref<4xf32>) outs(%[[BW]] : memref<4xf32>)
// CHECK: megakernel.tile ins(%{{.*}} = %[[W]] : memref<4xf32>) outs(%[[NP]] : memref<4xf32>)
// CHECK: megakernel.phase {
// CHECK-NEXT: megakernel.tile ins(%{{.*}} = %[[BW]] : memref<4xf32>) outs(%[[NW]] : memref<4xf32>)
megakernel.kernel @previous(%w: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %p: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %nw: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
    %np: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 1 : i64})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %bw = megakernel.buffer : memref<4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4xf32>) outs(%bw : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.commit %bw to %nw : memref<4xf32>
  megakernel.commit %w to %np : memref<4xf32>
  megakernel.return
}

// -----

// A state that stays as it is is copied, since its output may be other memory; nothing else is needed.
// CHECK-LABEL: megakernel.kernel @unchanged
// CHECK-SAME: (%[[W:.*]]: memref<4xf32> {{{.*}}}, %[[N:.*]]: memref<4xf32>
// CHECK-NEXT: megakernel.phase {
// CHECK-NEXT: megakernel.tile ins(%{{.*}} = %[[W]] : memref<4xf32>) outs(%[[N]] : memref<4xf32>)
// CHECK-NOT: megakernel.buffer
// CHECK-NOT: megakernel.phase
megakernel.kernel @unchanged(%w: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.commit %w to %n : memref<4xf32>
  megakernel.return
}
