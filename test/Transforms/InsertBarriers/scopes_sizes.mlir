// RUN: tk-opt %s --tk-insert-barriers --split-input-file | FileCheck %s

// The scope of a barrier is the least that joins each writer with its readers.

// Finer tiles whose writer is another CTA.
// CHECK-LABEL: megakernel.kernel @finer(
// CHECK: megakernel.barrier <grid>
megakernel.kernel @finer(%x: memref<8x4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<8x4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<8x4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8x4xf32>) outs(%b : memref<8x4xf32>) sizes [4, 4] {
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

// Rows become columns, dealt out in another order.
// CHECK-LABEL: megakernel.kernel @transposed_rows(
// CHECK: megakernel.barrier <grid>
megakernel.kernel @transposed_rows(%x: memref<8x4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<4x8xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<8x4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8x4xf32>) outs(%b : memref<8x4xf32>) sizes [2, 4] {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<8x4xf32>) outs(%y : memref<4x8xf32>) sizes [1, 8] {
      %e = tensor.empty() : tensor<4x8xf32>
      %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>],
                           iterator_types = ["parallel", "parallel"]}
          ins(%a : tensor<8x4xf32>) outs(%e : tensor<4x8xf32>) {
      ^bb0(%in: f32, %out: f32):
        linalg.yield %in : f32
      } -> tensor<4x8xf32>
      megakernel.yield %t : tensor<4x8xf32>
    }
  }
  megakernel.return
}

// -----

// Rows become columns.
// CHECK-LABEL: megakernel.kernel @transposed(
// CHECK: megakernel.barrier <cta>
megakernel.kernel @transposed(%x: memref<8x4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<4x8xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<8x4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8x4xf32>) outs(%b : memref<8x4xf32>) sizes [2, 4] {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<8x4xf32>) outs(%y : memref<4x8xf32>) sizes [4, 2] {
      %e = tensor.empty() : tensor<4x8xf32>
      %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>],
                           iterator_types = ["parallel", "parallel"]}
          ins(%a : tensor<8x4xf32>) outs(%e : tensor<4x8xf32>) {
      ^bb0(%in: f32, %out: f32):
        linalg.yield %in : f32
      } -> tensor<4x8xf32>
      megakernel.yield %t : tensor<4x8xf32>
    }
  }
  megakernel.return
}
