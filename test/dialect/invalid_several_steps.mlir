// Constraints of what concerns several steps in a launch.
// RUN: tk-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{is for launches of one step and repeats, expected no 'megakernel.repeat' (K5)}}
megakernel.kernel @repeats() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64,
                                         step_count = #megakernel.step_count<one>} {
  megakernel.repeat <cta>
  megakernel.return
}

// -----

megakernel.kernel @on_chip() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  // expected-error @below {{alternates on chip, expected it in the arena (B5)}}
  %b = megakernel.buffer {alternates, part = 4 : i64, shared_at = 0 : i64} : memref<4xf32>
  megakernel.return
}

// -----

megakernel.kernel @no_contraction(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
                                  %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    // expected-error @below {{has groups 2, expected a contraction and a power of two (T7)}}
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%y : memref<4xf32>) sizes [4] attributes {groups = 2 : i64} {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}
