// The first phase of a kernel that repeats stands behind the barrier between two steps.
// RUN: tk-opt %s --tk-prefetch-inputs | FileCheck %s

// On other CTAs the last phase of the step before writes %w, which is %n then; nothing writes the batch %x, nor %v so
// late.
// CHECK-LABEL: megakernel.kernel @step
// CHECK: megakernel.tile ins(%{{.*}} = %arg0 : memref<4xf32>, %{{.*}} = %arg1 : memref<4xf32>, %{{.*}} = %arg2
// CHECK-SAME: attributes {prefetched = array<i64: 1, 2>}
megakernel.kernel @step(%w: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
    %v: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
    %m: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 2 : i64})
    attributes {grid = 2 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4xf32>, %b = %x : memref<4xf32>, %c = %v : memref<4xf32>)
        outs(%y : memref<4xf32>) sizes [2] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%m : memref<4xf32>) sizes [2] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    megakernel.tile ins(%a = %y : memref<4xf32>) outs(%n : memref<4xf32>) sizes [2] first_cta 1 {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.repeat <grid>
  megakernel.return
}

// Both states are written before a barrier of scope cta: that orders what a CTA wrote itself, not what others wrote.
// CHECK-LABEL: megakernel.kernel @rows
// CHECK: megakernel.tile ins(%{{.*}} = %arg0 : memref<4x8xf32>, %{{.*}} = %arg2 : memref<4x8xf32>)
// CHECK-SAME: attributes {prefetched = array<i64: 0, 1>}
// CHECK: megakernel.tile ins(%{{.*}} = %arg1 : memref<4x8xf32>, %{{.*}} = %arg2 : memref<4x8xf32>)
// CHECK-SAME: attributes {prefetched = array<i64: 1>}
megakernel.kernel @rows(%w: memref<4x8xf32> {megakernel.role = #megakernel.role<state>},
    %v: memref<4x8xf32> {megakernel.role = #megakernel.role<state>},
    %x: memref<4x8xf32> {megakernel.role = #megakernel.role<batch>},
    %y: memref<4x8xf32> {megakernel.role = #megakernel.role<output>},
    %z: memref<4x8xf32> {megakernel.role = #megakernel.role<output>},
    %n: memref<4x8xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
    %m: memref<4x8xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 1 : i64})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4x8xf32>, %b = %x : memref<4x8xf32>) outs(%y : memref<4x8xf32>) sizes [1, 8] {
      megakernel.yield %a : tensor<4x8xf32>
    }
    megakernel.tile ins(%a = %v : memref<4x8xf32>, %b = %x : memref<4x8xf32>) outs(%z : memref<4x8xf32>) sizes [1, 8]
        first_cta 1 {
      megakernel.yield %a : tensor<4x8xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4x8xf32>) outs(%n, %m : memref<4x8xf32>, memref<4x8xf32>) sizes [1, 8] {
      megakernel.yield %a, %a : tensor<4x8xf32>, tensor<4x8xf32>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4x8xf32>) outs(%y : memref<4x8xf32>) sizes [1, 8] {
      megakernel.yield %a : tensor<4x8xf32>
    }
  }
  megakernel.repeat <grid>
  megakernel.return
}
