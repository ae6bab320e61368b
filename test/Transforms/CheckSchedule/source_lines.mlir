// A message names the paths of the user's arguments and stands at the user's lines; it prints no op.
// RUN: not tk-opt %s --tk-check-schedule 2>&1 | FileCheck %s

// CHECK: step.py:9:5: error: phase 1 reads input state['w'] after phase 0 writes output out[1]['w'] (the same memory where the state is donated), expected the read in an earlier phase
// CHECK: step.py:7:5: note: phase 0 writes output out[1]['w'] here
// CHECK-NOT: see current operation
megakernel.kernel @overwritten_state(
    %w: memref<4xf32> {megakernel.role = #megakernel.role<state>, megakernel.path = "state['w']"},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64,
                       megakernel.path = "out[1]['w']"},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>, megakernel.path = "out[2]"})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4xf32>) outs(%n : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    } loc(fused["step.py":7:5, "step.py":8:5])
  }
  megakernel.barrier <cta>
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4xf32>) outs(%y : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    } loc("step.py":9:5)
  }
  megakernel.return
}
