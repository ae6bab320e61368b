// RUN: tk-opt %s --tk-insert-barriers --split-input-file | FileCheck %s

// A phase that reads what the one before wrote waits for it. One that does not need not wait.
// CHECK-LABEL: megakernel.kernel @read_after_write
// CHECK: megakernel.phase {
// CHECK: megakernel.barrier <cta>
// CHECK-NEXT: megakernel.phase {
// CHECK-NOT: megakernel.barrier
// CHECK: megakernel.phase {
megakernel.kernel @read_after_write(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>},
    %z: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%b : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<4xf32>) outs(%y : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<4xf32>) outs(%z : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}

// -----

// An output that may be the memory of a state counts as that memory: here a write after a read. In a grid that is one
// cluster the cluster's barrier does.
// CHECK-LABEL: megakernel.kernel @donated
// CHECK: megakernel.phase {
// CHECK: megakernel.barrier <cluster>
// CHECK-NEXT: megakernel.phase {
megakernel.kernel @donated(%w: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 4 : i64, threads = 32 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4xf32>) outs(%y : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%n : memref<4xf32>) sizes [1] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}

// -----

// Several clusters are joined by the grid's barrier only.
// CHECK-LABEL: megakernel.kernel @grid
// CHECK: megakernel.barrier <grid>
megakernel.kernel @grid(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 2 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%b : memref<4xf32>) sizes [1] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<4xf32>) outs(%y : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}
