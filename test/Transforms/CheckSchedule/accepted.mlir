// A complete schedule passes and stays as it is.
// RUN: tk-opt %s --tk-check-schedule | FileCheck %s

// An update in place beside nothing else that reads the state; a buffer written, a barrier, and read.
// CHECK-LABEL: megakernel.kernel @complete
// CHECK-COUNT-2: megakernel.phase
// CHECK: megakernel.return
megakernel.kernel @complete(%w: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 2 : i64, cluster = 2 : i64, threads = 32 : i64, arena_bytes = 256 : i64} {
  %b = megakernel.buffer {offset = 0 : i64} : memref<4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4xf32>) outs(%n, %b : memref<4xf32>, memref<4xf32>) sizes [4] {
      megakernel.yield %a, %a : tensor<4xf32>, tensor<4xf32>
    }
  }
  megakernel.barrier <cluster>
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<4xf32>) outs(%y : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}
