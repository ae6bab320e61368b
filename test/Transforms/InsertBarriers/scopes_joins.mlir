// RUN: tk-opt %s --tk-insert-barriers --split-input-file | FileCheck %s

// The scope of a barrier is the least that joins each writer with its readers.

// Rows beside rows.
// CHECK-LABEL: megakernel.kernel @joined(
// CHECK: megakernel.barrier <cta>
megakernel.kernel @joined(%x: memref<8x4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<8x8xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<8x4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8x4xf32>) outs(%b : memref<8x4xf32>) sizes [2, 4] {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<8x4xf32>, %c = %x : memref<8x4xf32>)
        outs(%y : memref<8x8xf32>) sizes [2, 8] {
      %e = tensor.empty() : tensor<8x8xf32>
      %l = tensor.insert_slice %a into %e[0, 0] [8, 4] [1, 1] : tensor<8x4xf32> into tensor<8x8xf32>
      %t = tensor.insert_slice %c into %l[0, 4] [8, 4] [1, 1] : tensor<8x4xf32> into tensor<8x8xf32>
      megakernel.yield %t : tensor<8x8xf32>
    }
  }
  megakernel.return
}
