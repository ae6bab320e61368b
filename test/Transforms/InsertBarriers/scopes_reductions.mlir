// RUN: tk-opt %s --tk-insert-barriers --split-input-file | FileCheck %s

// The scope of a barrier is the least that joins each writer with its readers.

// A sum over whole rows.
// CHECK-LABEL: megakernel.kernel @row_sums(
// CHECK: megakernel.barrier <cta>
megakernel.kernel @row_sums(%x: memref<8x4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<8xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<8x4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8x4xf32>) outs(%b : memref<8x4xf32>) sizes [2, 4] {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<8x4xf32>) outs(%y : memref<8xf32>) sizes [2, 4] {
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<8xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
      %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                           iterator_types = ["parallel", "reduction"]}
          ins(%a : tensor<8x4xf32>) outs(%f : tensor<8xf32>) {
      ^bb0(%in: f32, %out: f32):
        %m = arith.addf %in, %out : f32
        linalg.yield %m : f32
      } -> tensor<8xf32>
      megakernel.yield %t : tensor<8xf32>
    }
  }
  megakernel.return
}

// -----

// A sum over rows whose columns have other writers.
// CHECK-LABEL: megakernel.kernel @split_row_sums(
// CHECK: megakernel.barrier <grid>
megakernel.kernel @split_row_sums(%x: memref<8x4xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<8xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<8x4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8x4xf32>) outs(%b : memref<8x4xf32>) sizes [8, 1] {
      megakernel.yield %a : tensor<8x4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<8x4xf32>) outs(%y : memref<8xf32>) sizes [2, 4] {
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<8xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
      %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                           iterator_types = ["parallel", "reduction"]}
          ins(%a : tensor<8x4xf32>) outs(%f : tensor<8xf32>) {
      ^bb0(%in: f32, %out: f32):
        %m = arith.addf %in, %out : f32
        linalg.yield %m : f32
      } -> tensor<8xf32>
      megakernel.yield %t : tensor<8xf32>
    }
  }
  megakernel.return
}
