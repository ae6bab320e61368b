// RUN: tk-opt %s --tk-insert-barriers --tk-keep-on-chip --tk-plan-buffers --tk-check-schedule --split-input-file \
// RUN:   | FileCheck %s

// Each CTA reads the rows that it made: they stay with it, and need no place in the arena.
// CHECK-LABEL: megakernel.kernel @own
// CHECK-SAME: arena_bytes = 0 : i64
// CHECK-SAME: shared_bytes = 64
// CHECK: %[[h:.*]] = megakernel.buffer {part = 16 : i64, shared_at = 0 : i64} : memref<4x16xf32>
// CHECK: outs(%[[h]] : memref<4x16xf32>) sizes [1, 16]
// CHECK: megakernel.barrier <cta>
// CHECK: ins(%{{.*}} = %[[h]] : memref<4x16xf32>) outs(%arg1
megakernel.kernel @own(%x: memref<4x16xf32> {megakernel.role = #megakernel.role<batch>},
                       %y: memref<4x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a"} {
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

// -----

// Others read the value, too: it is written to both places, and each reader has the nearer one.
// CHECK-LABEL: megakernel.kernel @both
// CHECK: %[[near:.*]] = megakernel.buffer {first_cta = 1 : i64, part = 16 : i64, shared_at = 0 : i64} : memref<4x16xf32>
// CHECK: %[[far:.*]] = megakernel.buffer {offset = 0 : i64} : memref<4x16xf32>
// CHECK: outs(%[[far]], %[[near]] : memref<4x16xf32>, memref<4x16xf32>) sizes [1, 16] first_cta 1
// CHECK: megakernel.yield %[[v:.*]], %[[v]] : tensor<4x16xf32>, tensor<4x16xf32>
// CHECK: ins(%{{.*}} = %[[near]] : memref<4x16xf32>) outs(%arg1
// CHECK: ins(%{{.*}} = %[[far]] : memref<4x16xf32>) outs(%arg2
megakernel.kernel @both(%x: memref<4x16xf32> {megakernel.role = #megakernel.role<batch>},
                        %y: memref<4x16xf32> {megakernel.role = #megakernel.role<output>},
                        %z: memref<4x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a"} {
  %h = megakernel.buffer : memref<4x16xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4x16xf32>) outs(%h : memref<4x16xf32>) sizes [1, 16] first_cta 1 {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %h : memref<4x16xf32>) outs(%y : memref<4x16xf32>) sizes [1, 16] first_cta 1 {
      megakernel.yield %a : tensor<4x16xf32>
    }
    megakernel.tile ins(%a = %h : memref<4x16xf32>) outs(%z : memref<4x16xf32>) sizes [4, 4] {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.return
}
