// What holds within a step must hold from each step to the next.
// RUN: tk-opt %s --tk-check-schedule --split-input-file --verify-diagnostics

// The buffer is written again, the state is read that the step before wrote, each step has its own %y.
megakernel.kernel @accepted(%w: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64})
    attributes {grid = 2 : i64, cluster = 1 : i64, threads = 32 : i64, arena_bytes = 16 : i64} {
  %b = megakernel.buffer {offset = 0 : i64} : memref<4xf32>
  megakernel.phase {
    megakernel.tile ins(%c = %x : memref<4xf32>, %a = %w : memref<4xf32>) outs(%b : memref<4xf32>) sizes [2]
        attributes {prefetched = array<i64: 0>} {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<4xf32>) outs(%n, %y : memref<4xf32>, memref<4xf32>) sizes [2] {
      megakernel.yield %a, %a : tensor<4xf32>, tensor<4xf32>
    }
  }
  megakernel.repeat <grid>
  megakernel.return
}

// -----

// Read ahead of the barrier between two steps, beside the write of the step before. Without a repeat it would be right.
megakernel.kernel @too_early(%w: memref<4xf32> {megakernel.role = #megakernel.role<state>, megakernel.path = "w"},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64,
                       megakernel.path = "out[1]"})
    attributes {grid = 2 : i64, cluster = 1 : i64, threads = 32 : i64, arena_bytes = 16 : i64} {
  %b = megakernel.buffer {offset = 0 : i64} : memref<4xf32>
  megakernel.phase {
    // expected-error @below {{phase 0 reads input w in the next step ahead of the barrier before it while phase 1 writes output out[1] (the same memory where the state is donated), expected the input not to be 'prefetched'}}
    megakernel.tile ins(%a = %w : memref<4xf32>) outs(%b : memref<4xf32>) sizes [2]
        attributes {prefetched = array<i64: 0>} {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    // expected-note @below {{phase 1 writes output out[1] here}}
    megakernel.tile ins(%a = %b : memref<4xf32>) outs(%n : memref<4xf32>) sizes [2] first_cta 1 {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.repeat <grid>
  megakernel.return
}

// -----

// From the second step on the state is what nobody has written.
megakernel.kernel @unwritten(%w: memref<4xf32> {megakernel.role = #megakernel.role<state>, megakernel.path = "w"},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64})
    attributes {grid = 2 : i64, cluster = 1 : i64, threads = 32 : i64, arena_bytes = 0 : i64} {
  megakernel.phase {
    // expected-error @below {{phase 0 reads input w in the next step, of which no earlier phase wrote all bytes, expected a write and a barrier before this phase}}
    megakernel.tile ins(%a = %w : memref<4xf32>) outs(%y : memref<4xf32>) sizes [2] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.repeat <grid>
  megakernel.return
}
