// RUN: tk-opt %s --convert-megakernel-to-cpu --split-input-file --verify-diagnostics
// RUN: not tk-opt %s --convert-megakernel-to-cpu=vector-bits=128 2>&1 | FileCheck %s --check-prefix=BITS

// BITS: error: vector-bits is 128, expected 256 or 512
// expected-error @below {{is scheduled for 'sm_90a', expected 'cpu'}}
megakernel.kernel @gpu()
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a"} {
  megakernel.return
}

// -----

megakernel.kernel @unplaced() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  // expected-error @below {{buffer has no offset, expected 'tk-plan-buffers' to have run}}
  %b = megakernel.buffer : memref<4xf32>
  megakernel.return
}

// -----

megakernel.kernel @commit(%w: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  // expected-error @below {{commit is not resolved, expected 'tk-commit-state' to have run}}
  megakernel.commit %w to %n : memref<4xf32>
  megakernel.return
}

// -----

// expected-error @below {{'megakernel.manifest' is not a JSON object}}
module attributes {megakernel.manifest = "[1]"} {
  megakernel.kernel @manifest() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
    megakernel.return
  }
}

// -----

megakernel.kernel @table(%y: memref<65xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    megakernel.tile ins() outs(%y : memref<65xf32>) sizes [65] {
      // expected-error @below {{a constant tensor of 65 unequal elements is not supported, expected at most 64; pass it as an argument of the step}}
      %c = arith.constant dense<"0x000000000000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F"> : tensor<65xf32>
      megakernel.yield %c : tensor<65xf32>
    }
  }
  megakernel.return
}
