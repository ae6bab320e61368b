// Schedules that no target can run.
// RUN: tk-opt %s --tk-check-schedule --split-input-file --verify-diagnostics

megakernel.kernel @unplaced() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  // expected-error @below {{buffer memref<4xf32> has no offset, expected 'tk-plan-buffers' to have run}}
  %b = megakernel.buffer : memref<4xf32>
  megakernel.return
}

// -----

megakernel.kernel @outside()
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, arena_bytes = 256 : i64} {
  // expected-error @below {{buffer memref<4xf32> at byte 256 ends at byte 272 of an arena of 256 bytes, expected 'arena_bytes' to cover it}}
  %b = megakernel.buffer {offset = 256 : i64} : memref<4xf32>
  megakernel.return
}

// -----

megakernel.kernel @commit(%w: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  // expected-error @below {{commit to output argument 1 is not resolved, expected 'tk-commit-state' to have run}}
  megakernel.commit %w to %n : memref<4xf32>
  megakernel.return
}
