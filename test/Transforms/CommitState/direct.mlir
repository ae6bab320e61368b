// New states that are written straight to their output.
// RUN: tk-opt %s --tk-commit-state | FileCheck %s

// The update reads the old state at the element that it writes, and every other reader comes earlier.
// CHECK-LABEL: megakernel.kernel @in_place
// CHECK-SAME: (%[[W:.*]]: memref<4xf32> {{{.*}}}, %[[N:.*]]: memref<4xf32> {{{.*}}}, %[[Y:.*]]: memref<4xf32>
// CHECK-NEXT: megakernel.phase {
// CHECK-NEXT: megakernel.tile ins(%{{.*}} = %[[W]] : memref<4xf32>) outs(%[[Y]] : memref<4xf32>)
// CHECK: megakernel.phase {
// CHECK-NEXT: megakernel.tile ins(%{{.*}} = %[[W]] : memref<4xf32>) outs(%[[N]] : memref<4xf32>)
// CHECK-NOT: megakernel.phase
// CHECK-NOT: megakernel.commit
megakernel.kernel @in_place(%w: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
    %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<4xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4xf32>) outs(%y : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.phase {
    megakernel.tile ins(%a = %w : memref<4xf32>) outs(%b : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.commit %b to %n : memref<4xf32>
  megakernel.return
}

// A new state that is a reshape of what is computed: the tile writes a view of the output.
// CHECK-LABEL: megakernel.kernel @reshaped
// CHECK-SAME: (%[[W:.*]]: memref<2x3xf32> {{{.*}}}, %[[N:.*]]: memref<2x3xf32> {{{.*}}}, %[[X:.*]]: memref<6xf32>
// CHECK-NEXT: %[[FLAT:.*]] = memref.collapse_shape %[[N]]
// CHECK: megakernel.tile ins(%{{.*}} = %[[X]] : memref<6xf32>) outs(%[[FLAT]] : memref<6xf32>)
// CHECK-NOT: megakernel.phase
megakernel.kernel @reshaped(%w: memref<2x3xf32> {megakernel.role = #megakernel.role<state>},
    %n: memref<2x3xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
    %x: memref<6xf32> {megakernel.role = #megakernel.role<batch>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<6xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<6xf32>) outs(%b : memref<6xf32>) sizes [6] {
      megakernel.yield %a : tensor<6xf32>
    }
  }
  %v = memref.expand_shape %b [[0, 1]] output_shape [2, 3] : memref<6xf32> into memref<2x3xf32>
  megakernel.commit %v to %n : memref<2x3xf32>
  megakernel.return
}
