// What is read ahead of the barrier is read beside what other CTAs do in the phase before it.
// RUN: tk-opt %s --tk-check-schedule --split-input-file --verify-diagnostics

megakernel.kernel @too_early(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 2 : i64, cluster = 1 : i64, threads = 32 : i64, arena_bytes = 16 : i64} {
  %b = megakernel.buffer {offset = 0 : i64} : memref<4xf32>
  megakernel.phase {
    // expected-note @below {{phase 0 writes buffer memref<4xf32> at byte 0 here}}
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%b : memref<4xf32>) sizes [2] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    // expected-error @below {{phase 1 reads buffer memref<4xf32> at byte 0 ahead of the barrier before it while phase 0 writes buffer memref<4xf32> at byte 0, expected the input not to be 'prefetched'}}
    megakernel.tile ins(%a = %b : memref<4xf32>) outs(%y : memref<4xf32>) sizes [2] first_cta 1
        attributes {prefetched = array<i64: 0>} {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}

// -----

// What a CTA made itself is there once it has arrived.
megakernel.kernel @own(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 2 : i64, cluster = 1 : i64, threads = 32 : i64, arena_bytes = 16 : i64} {
  %b = megakernel.buffer {offset = 0 : i64} : memref<4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%b : memref<4xf32>) sizes [2] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<4xf32>) outs(%y : memref<4xf32>) sizes [2]
        attributes {prefetched = array<i64: 0>} {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}
