// RUN: tk-opt %s --tk-insert-barriers --split-input-file | FileCheck %s

// Rows 1 to 4.
// CHECK-LABEL: megakernel.kernel @sliced_across(
// CHECK: megakernel.barrier <grid>
megakernel.kernel @sliced_across(%x: memref<8x4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<4x4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<8x4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8x4xf32>) outs(%b : memref<8x4xf32>) sizes [2, 4] {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<8x4xf32>) outs(%y : memref<4x4xf32>) sizes [2, 4] {
      %t = tensor.extract_slice %a[1, 0] [4, 4] [1, 1] : tensor<8x4xf32> to tensor<4x4xf32>
      megakernel.yield %t : tensor<4x4xf32>
    }
  }
  megakernel.return
}
