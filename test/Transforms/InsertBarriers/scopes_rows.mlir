// RUN: tk-opt %s --tk-insert-barriers --split-input-file | FileCheck %s

// The scope of a barrier is the least that joins each writer with its readers.

// The CTA that reads a row is the one that wrote it.
// CHECK-LABEL: megakernel.kernel @rows(
// CHECK: megakernel.barrier <cta>
megakernel.kernel @rows(%x: memref<8x4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<8x4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
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

// The same tiles, dealt out from another CTA on.
// CHECK-LABEL: megakernel.kernel @shifted(
// CHECK: megakernel.barrier <grid>
megakernel.kernel @shifted(%x: memref<8x4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<8x4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<8x4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8x4xf32>) outs(%b : memref<8x4xf32>) sizes [2, 4] {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<8x4xf32>) outs(%y : memref<8x4xf32>) sizes [2, 4] first_cta 1 {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  megakernel.return
}

// -----

// Counted modulo the grid it is the same CTA.
// CHECK-LABEL: megakernel.kernel @around(
// CHECK: megakernel.barrier <cta>
megakernel.kernel @around(%x: memref<8x4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<8x4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
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

// -----

// Other tiles: rows come from two CTAs.
// CHECK-LABEL: megakernel.kernel @coarser(
// CHECK: megakernel.barrier <grid>
megakernel.kernel @coarser(%x: memref<8x4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<8x4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<8x4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8x4xf32>) outs(%b : memref<8x4xf32>) sizes [2, 4] {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<8x4xf32>) outs(%y : memref<8x4xf32>) sizes [4, 4] {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  megakernel.return
}
