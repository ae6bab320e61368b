// RUN: tk-opt %s --tk-insert-barriers --split-input-file | FileCheck %s

// The scope of a barrier is the least that joins each writer with its readers.

// Two rows of four are eight elements in a row.
// CHECK-LABEL: megakernel.kernel @reshaped(
// CHECK: megakernel.barrier <cta>
megakernel.kernel @reshaped(%x: memref<8x4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<32xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<8x4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8x4xf32>) outs(%b : memref<8x4xf32>) sizes [2, 4] {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  %v = memref.collapse_shape %b [[0, 1]] : memref<8x4xf32> into memref<32xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %v : memref<32xf32>) outs(%y : memref<32xf32>) sizes [8] {
      megakernel.yield %a : tensor<32xf32>
    }
  }
  megakernel.return
}

// -----

// Four elements are one row.
// CHECK-LABEL: megakernel.kernel @reshaped_finer(
// CHECK: megakernel.barrier <grid>
megakernel.kernel @reshaped_finer(%x: memref<8x4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<32xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<8x4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8x4xf32>) outs(%b : memref<8x4xf32>) sizes [2, 4] {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  %v = memref.collapse_shape %b [[0, 1]] : memref<8x4xf32> into memref<32xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %v : memref<32xf32>) outs(%y : memref<32xf32>) sizes [4] {
      megakernel.yield %a : tensor<32xf32>
    }
  }
  megakernel.return
}

// -----

// Rows 4 to 7 were written by CTAs 2 and 3.
// CHECK-LABEL: megakernel.kernel @sliced(
// CHECK: megakernel.barrier <cta>
megakernel.kernel @sliced(%x: memref<8x4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<4x4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<8x4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8x4xf32>) outs(%b : memref<8x4xf32>) sizes [2, 4] {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<8x4xf32>) outs(%y : memref<4x4xf32>) sizes [2, 4] first_cta 2 {
      %t = tensor.extract_slice %a[4, 0] [4, 4] [1, 1] : tensor<8x4xf32> to tensor<4x4xf32>
      megakernel.yield %t : tensor<4x4xf32>
    }
  }
  megakernel.return
}

// -----

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
