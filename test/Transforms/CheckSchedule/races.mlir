// Accesses that nothing orders.
// RUN: tk-opt %s --tk-check-schedule --split-input-file --verify-diagnostics

megakernel.kernel @no_barrier(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
                              %y: memref<4xf32> {megakernel.role = #megakernel.role<output>},
                              %z: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    // expected-note @below {{phase 0 writes output argument 1 here}}
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%y : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.phase {
    // expected-error @below {{phase 1 reads output argument 1 while phase 0 writes output argument 1, expected a barrier between the two phases}}
    megakernel.tile ins(%a = %y : memref<4xf32>) outs(%z : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}

// -----

// With donated state, writing the new state is writing the old one.
megakernel.kernel @update_beside_reader(%w: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    // expected-note @below {{phase 0 reads input argument 0 here}}
    megakernel.tile ins(%a = %w : memref<4xf32>) outs(%y : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
    // expected-error @below {{phase 0 writes output argument 1 while phase 0 reads input argument 0 (the same memory where the state is donated), expected two phases with a barrier between them}}
    megakernel.tile ins(%a = %w : memref<4xf32>) outs(%n : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}

// -----

// Buffers that overlap in the arena.
megakernel.kernel @overlap(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, arena_bytes = 256 : i64} {
  %b = megakernel.buffer {offset = 0 : i64} : memref<8xf32>
  %c = megakernel.buffer {offset = 16 : i64} : memref<4xf32>
  megakernel.phase {
    // expected-note @below {{phase 0 writes buffer memref<8xf32> at byte 0 here}}
    megakernel.tile ins() outs(%b : memref<8xf32>) sizes [8] {
      %zero = arith.constant dense<0.0> : tensor<8xf32>
      megakernel.yield %zero : tensor<8xf32>
    }
    // expected-error @below {{phase 0 writes buffer memref<4xf32> at byte 16 while phase 0 writes buffer memref<8xf32> at byte 0 (they overlap in the arena), expected two phases with a barrier between them}}
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%c : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}
