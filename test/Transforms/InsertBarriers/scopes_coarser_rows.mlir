// RUN: tk-opt %s --tk-insert-barriers --split-input-file | FileCheck %s

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
