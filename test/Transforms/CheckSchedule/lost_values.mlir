// Reads that find something else than they should.
// RUN: tk-opt %s --tk-check-schedule --split-input-file --verify-diagnostics

// The barriers order everything, but the second phase wants the old state.
megakernel.kernel @overwritten_state(%w: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    // expected-note @below {{phase 0 writes output argument 1 here}}
    megakernel.tile ins(%a = %w : memref<4xf32>) outs(%n : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    // expected-error @below {{phase 1 reads input argument 0 after phase 0 writes output argument 1 (the same memory where the state is donated), expected the read in an earlier phase}}
    megakernel.tile ins(%a = %w : memref<4xf32>) outs(%y : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}

// -----

// Half of the buffer is written.
megakernel.kernel @half(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
                        %y: memref<8xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, arena_bytes = 256 : i64} {
  %b = megakernel.buffer {offset = 0 : i64} : memref<4xf32>
  %c = megakernel.buffer {offset = 0 : i64} : memref<8xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%b : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    // expected-error @below {{phase 1 reads buffer memref<8xf32> at byte 0, of which no earlier phase wrote all bytes, expected a write and a barrier before this phase}}
    megakernel.tile ins(%a = %c : memref<8xf32>) outs(%y : memref<8xf32>) sizes [8] {
      megakernel.yield %a : tensor<8xf32>
    }
  }
  megakernel.return
}

// -----

// An output is no input: it starts with anything.
megakernel.kernel @unwritten_output(%y: memref<4xf32> {megakernel.role = #megakernel.role<output>},
                                    %z: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    // expected-error @below {{phase 0 reads output argument 0, of which no earlier phase wrote all bytes, expected a write and a barrier before this phase}}
    megakernel.tile ins(%a = %y : memref<4xf32>) outs(%z : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}
