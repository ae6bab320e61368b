// RUN: tk-opt %s --tk-insert-barriers --split-input-file | FileCheck %s

// The scope of a barrier is the least that joins each writer with its readers.

// Each row was written by a CTA of the same cluster.
// CHECK-LABEL: megakernel.kernel @neighbours(
// CHECK: megakernel.barrier <grid>
megakernel.kernel @neighbours(%x: memref<8x4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<8x4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 2 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<8x4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8x4xf32>) outs(%b : memref<8x4xf32>) sizes [2, 4] first_cta 1 {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<8x4xf32>) outs(%y : memref<8x4xf32>) sizes [2, 4] {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  megakernel.return
}

// -----

// CTAs 0 and 1 write what they both read.
// CHECK-LABEL: megakernel.kernel @cluster(
// CHECK: megakernel.barrier <cluster>
megakernel.kernel @cluster(%x: memref<8x4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<8x4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 2 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<8x4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8x4xf32>) outs(%b : memref<8x4xf32>) sizes [4, 2] {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<8x4xf32>) outs(%y : memref<8x4xf32>) sizes [2, 4] {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  megakernel.return
}

// -----

// How many workers a CPU has is not known: only equal places are one worker.
// CHECK-LABEL: megakernel.kernel @workers(
// CHECK: megakernel.barrier <cta>
megakernel.kernel @workers(%x: memref<8x4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<8x4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, target = "cpu", threads = 32 : i64} {
  %b = megakernel.buffer : memref<8x4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8x4xf32>) outs(%b : memref<8x4xf32>) sizes [2, 4] {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<8x4xf32>) outs(%y : memref<8x4xf32>) sizes [2, 4] {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  megakernel.return
}

// -----

// Equal modulo the grid is not enough there.
// CHECK-LABEL: megakernel.kernel @workers_around(
// CHECK: megakernel.barrier <grid>
megakernel.kernel @workers_around(%x: memref<8x4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<8x4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, target = "cpu", threads = 32 : i64} {
  %b = megakernel.buffer : memref<8x4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8x4xf32>) outs(%b : memref<8x4xf32>) sizes [2, 4] first_cta 1 {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<8x4xf32>) outs(%y : memref<8x4xf32>) sizes [2, 4] first_cta 5 {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  megakernel.return
}
