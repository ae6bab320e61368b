// Of a kernel that repeats already, the barriers are those that one step needs.
// RUN: tk-opt %s --tk-insert-barriers | FileCheck %s

// CHECK-LABEL: megakernel.kernel @one_phase
// CHECK-NOT: megakernel.barrier
// CHECK: megakernel.repeat <grid>
megakernel.kernel @one_phase(%w: memref<4x8xf32> {megakernel.role = #megakernel.role<state>},
    %n: memref<4x8xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4x8xf32>) outs(%n : memref<4x8xf32>) sizes [1, 8] {
      megakernel.yield %a : tensor<4x8xf32>
    }
  }
  megakernel.repeat <grid>
  megakernel.return
}

// CHECK-LABEL: megakernel.kernel @two_phases
// CHECK: megakernel.phase
// CHECK: megakernel.barrier <grid>
// CHECK: megakernel.phase
// CHECK-NOT: megakernel.barrier
// CHECK: megakernel.repeat <grid>
megakernel.kernel @two_phases(%x: memref<4x8xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<4x8xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<4x8xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4x8xf32>) outs(%b : memref<4x8xf32>) sizes [1, 8] {
      megakernel.yield %a : tensor<4x8xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %b : memref<4x8xf32>) outs(%y : memref<4x8xf32>) sizes [1, 8] first_cta 1 {
      megakernel.yield %a : tensor<4x8xf32>
    }
  }
  megakernel.repeat <grid>
  megakernel.return
}
