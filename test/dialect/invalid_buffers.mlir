// Constraints on memory: K3 (updates), B1 and B2 (buffers), C1 and C2 (commits).
// RUN: tk-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{argument 1 has 'megakernel.updates' 0 : i64, expected it on an output, with the index of a state of the same type (K3)}}
megakernel.kernel @updates_other_type(%w: memref<4xf64> {megakernel.role = #megakernel.role<state>},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.return
}

// -----

// expected-error @below {{argument 1 has 'megakernel.updates' 0 : si64, expected it on an output}}
megakernel.kernel @updates_batch(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : si64})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.return
}

// -----

// expected-error @below {{arguments 1 and 2 both update argument 0, expected one update of each state (K3)}}
megakernel.kernel @updates_twice(%w: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
    %m: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.return
}

// -----

megakernel.kernel @buffer_type() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  // expected-error @below {{has type 'memref<4xf32, 3>', expected a contiguous memref of static shape without zero extents (B1)}}
  %b = megakernel.buffer : memref<4xf32, 3>
  megakernel.return
}

// -----

megakernel.kernel @unaligned() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  // expected-error @below {{has offset 8, expected a non-negative multiple of 16 (B2)}}
  %b = megakernel.buffer {offset = 8 : i64} : memref<4xf32>
  megakernel.return
}

// -----

megakernel.kernel @negative() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  // expected-error @below {{has offset -16, expected a non-negative multiple of 16 (B2)}}
  %b = megakernel.buffer {offset = -16 : i64} : memref<4xf32>
  megakernel.return
}

// -----

megakernel.kernel @commit_types(%n: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<2x2xf32>
  // C1
  // expected-error @below {{requires all operands to have the same type}}
  "megakernel.commit"(%b, %n) : (memref<2x2xf32>, memref<4xf32>) -> ()
  megakernel.return
}

// -----

megakernel.kernel @commit_to_input(%w: memref<4xf32> {megakernel.role = #megakernel.role<state>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<4xf32>
  // expected-error @below {{has a target that is not an output argument of the kernel (C2)}}
  megakernel.commit %b to %w : memref<4xf32>
  megakernel.return
}
