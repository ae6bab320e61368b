// RUN: tk-opt %s --tk-insert-barriers --split-input-file | FileCheck %s

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
