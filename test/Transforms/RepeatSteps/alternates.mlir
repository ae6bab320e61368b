// A buffer that others still read when the next step writes it gets a place for even steps and one for odd ones, where
// fewer CTAs have to meet then; its places share memory with nothing else.
// RUN: tk-opt %s --tk-repeat-steps --tk-plan-buffers --tk-check-schedule --split-input-file | FileCheck %s

// CHECK-LABEL: megakernel.kernel @read_late
// CHECK-DAG: megakernel.buffer {alternates, offset = 0 : i64} : memref<4xf32>
// CHECK-DAG: megakernel.buffer {offset = 256 : i64} : memref<8xf32>
// CHECK: megakernel.repeat <cta>
megakernel.kernel @read_late(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
    %v: memref<8xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>},
    %z: memref<8xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<4xf32>
  %c = megakernel.buffer : memref<8xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%b : memref<4xf32>) sizes [1] {
      megakernel.yield %a : tensor<4xf32>
    }
    megakernel.tile ins(%a = %v : memref<8xf32>) outs(%c : memref<8xf32>) sizes [2] {
      megakernel.yield %a : tensor<8xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<4xf32>) outs(%y : memref<4xf32>) sizes [1] first_cta 1 {
      megakernel.yield %a : tensor<4xf32>
    }
    megakernel.tile ins(%a = %c : memref<8xf32>) outs(%z : memref<8xf32>) sizes [2] {
      megakernel.yield %a : tensor<8xf32>
    }
  }
  megakernel.return
}

// -----

// The state keeps all CTAs together anyway.
// CHECK-LABEL: megakernel.kernel @in_vain
// CHECK: megakernel.buffer {offset = 0 : i64} : memref<4xf32>
// CHECK: megakernel.repeat <grid>
megakernel.kernel @in_vain(%w: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4xf32>) outs(%b : memref<4xf32>) sizes [1] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<4xf32>) outs(%n : memref<4xf32>) sizes [1] first_cta 1 {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}
