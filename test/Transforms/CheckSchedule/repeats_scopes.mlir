// A repeat joins at least those of whom one touches in the next step what another one touched.
// RUN: tk-opt %s --tk-check-schedule --split-input-file --verify-diagnostics

// Each CTA reads what it wrote itself in the step before: nothing has to be met but its own threads.
megakernel.kernel @own_rows(%w: memref<4x8xf32> {megakernel.role = #megakernel.role<state>},
    %n: memref<4x8xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64})
    attributes {grid = 4 : i64, cluster = 2 : i64, threads = 32 : i64, arena_bytes = 0 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4x8xf32>) outs(%n : memref<4x8xf32>) sizes [1, 8] {
      megakernel.yield %a : tensor<4x8xf32>
    }
  }
  megakernel.repeat <cta>
  megakernel.return
}

// -----

// The CTAs of one step write what others read in the next one, and read what others write.
megakernel.kernel @too_narrow(%w: memref<4x8xf32> {megakernel.role = #megakernel.role<state>, megakernel.path = "w"},
    %n: memref<4x8xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64,
                         megakernel.path = "out[0]"})
    attributes {grid = 4 : i64, cluster = 2 : i64, threads = 32 : i64, arena_bytes = 128 : i64} {
  %b = megakernel.buffer {offset = 0 : i64} : memref<4x8xf32>
  megakernel.phase {
    // expected-error @below {{phase 0 reads input w in the next step while phase 1 writes output out[0] (the same memory where the state is donated), expected a repeat of scope grid between the two steps}}
    // expected-error @below {{phase 0 writes buffer memref<4x8xf32> at byte 0 in the next step while phase 1 reads buffer memref<4x8xf32> at byte 0, expected a repeat of scope grid between the two steps}}
    megakernel.tile ins(%a = %w : memref<4x8xf32>) outs(%b : memref<4x8xf32>) sizes [1, 8] {
      megakernel.yield %a : tensor<4x8xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    // expected-note @below {{phase 1 writes output out[0] here}}
    // expected-note @below {{phase 1 reads buffer memref<4x8xf32> at byte 0 here}}
    megakernel.tile ins(%a = %b : memref<4x8xf32>) outs(%n : memref<4x8xf32>) sizes [1, 8]
        first_cta 2 {
      megakernel.yield %a : tensor<4x8xf32>
    }
  }
  megakernel.repeat <cluster>
  megakernel.return
}

// -----

// A buffer that the step before still reads is written again.
megakernel.kernel @written_again(%x: memref<4x8xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<4x8xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 4 : i64, threads = 32 : i64, arena_bytes = 128 : i64} {
  %b = megakernel.buffer {offset = 0 : i64} : memref<4x8xf32>
  megakernel.phase {
    // expected-error @below {{phase 0 writes buffer memref<4x8xf32> at byte 0 in the next step while phase 1 reads buffer memref<4x8xf32> at byte 0, expected a repeat of scope cluster between the two steps}}
    megakernel.tile ins(%a = %x : memref<4x8xf32>) outs(%b : memref<4x8xf32>) sizes [1, 8] {
      megakernel.yield %a : tensor<4x8xf32>
    }
  }
  megakernel.barrier <cluster>
  megakernel.phase {
    // expected-note @below {{phase 1 reads buffer memref<4x8xf32> at byte 0 here}}
    megakernel.tile ins(%a = %b : memref<4x8xf32>) outs(%y : memref<4x8xf32>) sizes [1, 8]
        first_cta 1 {
      megakernel.yield %a : tensor<4x8xf32>
    }
  }
  megakernel.repeat <cta>
  megakernel.return
}
