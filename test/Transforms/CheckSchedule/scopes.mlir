// Barriers that join too few CTAs.
// RUN: tk-opt %s --tk-check-schedule --split-input-file --verify-diagnostics

// Each CTA reads what it wrote: the least barrier does.
megakernel.kernel @own(%x: memref<8xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<8xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 2 : i64, threads = 32 : i64, arena_bytes = 256 : i64} {
  %b = megakernel.buffer {offset = 0 : i64} : memref<8xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8xf32>) outs(%b : memref<8xf32>) sizes [2] {
      megakernel.yield %a : tensor<8xf32>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<8xf32>) outs(%y : memref<8xf32>) sizes [2] {
      megakernel.yield %a : tensor<8xf32>
    }
  }
  megakernel.return
}

// -----

megakernel.kernel @neighbours(%x: memref<8xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<8xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 2 : i64, threads = 32 : i64, arena_bytes = 256 : i64} {
  %b = megakernel.buffer {offset = 0 : i64} : memref<8xf32>
  megakernel.phase {
    // expected-note @below {{phase 0 writes buffer memref<8xf32> at byte 0 here}}
    megakernel.tile ins(%a = %x : memref<8xf32>) outs(%b : memref<8xf32>) sizes [2] {
      megakernel.yield %a : tensor<8xf32>
    }
  }
  megakernel.barrier <cluster>
  megakernel.phase {
    // expected-error @below {{phase 1 reads buffer memref<8xf32> at byte 0 while phase 0 writes buffer memref<8xf32> at byte 0, expected a barrier of scope grid between the two phases}}
    megakernel.tile ins(%a = %b : memref<8xf32>) outs(%y : memref<8xf32>) sizes [2] first_cta 1 {
      megakernel.yield %a : tensor<8xf32>
    }
  }
  megakernel.return
}

// -----

// No barrier orders not even a CTA's own threads.
megakernel.kernel @threads(%x: memref<8xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<8xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, arena_bytes = 256 : i64} {
  %b = megakernel.buffer {offset = 0 : i64} : memref<8xf32>
  megakernel.barrier <grid>
  megakernel.phase {
    // expected-note @below {{phase 0 writes buffer memref<8xf32> at byte 0 here}}
    megakernel.tile ins(%a = %x : memref<8xf32>) outs(%b : memref<8xf32>) sizes [2] {
      megakernel.yield %a : tensor<8xf32>
    }
  }
  megakernel.phase {
    // expected-error @below {{expected a barrier of scope cta between the two phases}}
    megakernel.tile ins(%a = %b : memref<8xf32>) outs(%y : memref<8xf32>) sizes [2] {
      megakernel.yield %a : tensor<8xf32>
    }
  }
  megakernel.return
}
