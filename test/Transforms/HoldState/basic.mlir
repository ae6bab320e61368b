// Between the steps of a launch a CTA holds the state that it alone reads and writes.
// RUN: tk-opt %s --tk-hold-state --tk-repeat-steps --tk-plan-buffers --tk-check-schedule --split-input-file | FileCheck %s

// CHECK-LABEL: megakernel.kernel @own
// CHECK: %[[HELD:.*]] = megakernel.buffer {part = 16 : i64, shared_at = 0 : i64, state = 0 : i64} : memref<4x16xf32>
// CHECK: megakernel.tile ins(%{{.*}} = %[[HELD]] : memref<4x16xf32>) outs(%arg1
// CHECK: megakernel.tile ins(%{{.*}} = %[[HELD]] : memref<4x16xf32>) outs(%arg2, %[[HELD]] : memref<4x16xf32>, memref<4x16xf32>)
// CHECK: megakernel.yield %[[VALUE:.*]], %[[VALUE]]
// CHECK: megakernel.repeat <cta>
megakernel.kernel @own(%w: memref<4x16xf32> {megakernel.role = #megakernel.role<state>},
    %y: memref<4x16xf32> {megakernel.role = #megakernel.role<output>},
    %n: memref<4x16xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a",
                step_count = #megakernel.step_count<several>} {
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4x16xf32>) outs(%y : memref<4x16xf32>) sizes [1, 16] {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4x16xf32>) outs(%n : memref<4x16xf32>) sizes [1, 16] {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.return
}

// -----

// Another CTA reads what this one writes.
// CHECK-LABEL: megakernel.kernel @others
// CHECK-NOT: state = 0
megakernel.kernel @others(%w: memref<4x16xf32> {megakernel.role = #megakernel.role<state>},
    %y: memref<4x16xf32> {megakernel.role = #megakernel.role<output>},
    %n: memref<4x16xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a",
                step_count = #megakernel.step_count<several>} {
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4x16xf32>) outs(%y : memref<4x16xf32>) sizes [1, 16] {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4x16xf32>) outs(%n : memref<4x16xf32>) sizes [1, 16] first_cta 1 {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.return
}

// -----

// A launch of one step would only load it once more.
// CHECK-LABEL: megakernel.kernel @one
// CHECK-NOT: state = 0
megakernel.kernel @one(%w: memref<4x16xf32> {megakernel.role = #megakernel.role<state>},
    %n: memref<4x16xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a"} {
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4x16xf32>) outs(%n : memref<4x16xf32>) sizes [1, 16] {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.return
}
