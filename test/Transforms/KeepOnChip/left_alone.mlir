// RUN: tk-opt %s --tk-insert-barriers --tk-keep-on-chip --split-input-file | FileCheck %s
// CHECK-NOT: shared_at

// Parts that are no run of elements, and a CPU.
megakernel.kernel @columns(%x: memref<4x16xf32> {megakernel.role = #megakernel.role<batch>},
                           %y: memref<4x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a"} {
  %h = megakernel.buffer : memref<4x16xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4x16xf32>) outs(%h : memref<4x16xf32>) sizes [4, 4] {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %h : memref<4x16xf32>) outs(%y : memref<4x16xf32>) sizes [4, 4] {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.return
}

// -----

megakernel.kernel @cpu(%x: memref<4x16xf32> {megakernel.role = #megakernel.role<batch>},
                       %y: memref<4x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, target = "cpu"} {
  %h = megakernel.buffer : memref<4x16xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4x16xf32>) outs(%h : memref<4x16xf32>) sizes [1, 16] {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %h : memref<4x16xf32>) outs(%y : memref<4x16xf32>) sizes [1, 16] {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.return
}
