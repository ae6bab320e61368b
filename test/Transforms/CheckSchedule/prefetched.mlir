// What is read ahead of the barrier is read beside the phase before it.
// RUN: tk-opt %s --tk-check-schedule --verify-diagnostics

megakernel.kernel @too_early(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 2 : i64, cluster = 1 : i64, threads = 32 : i64, arena_bytes = 16 : i64} {
  %b = megakernel.buffer {offset = 0 : i64} : memref<4xf32>
  megakernel.phase {
    // expected-note @below {{the other access}}
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%b : memref<4xf32>) sizes [2] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    // expected-error @below {{reads what another access writes with no barrier between them, expected one}}
    // expected-error @below {{reads bytes that no earlier phase wrote, expected a write and a barrier before it}}
    megakernel.tile ins(%a = %b : memref<4xf32>) outs(%y : memref<4xf32>) sizes [2]
        attributes {prefetched = array<i64: 0>} {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}
