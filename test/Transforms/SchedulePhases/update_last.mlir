// An update goes after the other readers of the state that it replaces where that costs no phase.
// RUN: tk-opt %s --tk-schedule-phases=target=cpu | FileCheck %s

// The update could run in the first phase; it runs in the second, where nobody reads the state any more.
// CHECK-LABEL: megakernel.kernel @update
// CHECK-SAME: (%[[W:[^:]*]]: memref<4xf32>
// CHECK: %[[B:.*]] = megakernel.buffer
// CHECK: megakernel.phase {
// CHECK-NEXT: megakernel.tile ins(%{{.*}} = %[[W]] : memref<4xf32>) outs(%[[Y:.*]] : memref<4xf32>)
// CHECK-NOT: megakernel.tile
// CHECK: megakernel.phase {
// CHECK-NOT: megakernel.phase
// CHECK-DAG: megakernel.tile ins(%{{.*}} = %[[W]] : memref<4xf32>) outs(%[[B]] : memref<4xf32>)
// CHECK-DAG: megakernel.tile ins(%{{.*}} = %[[Y]] : memref<4xf32>) outs(%{{.*}} : memref<4xf32>)
// CHECK: megakernel.commit %[[B]]
megakernel.step @update(%w: tensor<4xf32> {megakernel.role = #megakernel.role<state>})
    -> (tensor<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
        tensor<4xf32> {megakernel.role = #megakernel.role<output>},
        tensor<4xf32> {megakernel.role = #megakernel.role<output>}) {
  %n = megakernel.fused(%a = %w : tensor<4xf32>) -> tensor<4xf32> {
    megakernel.yield %a : tensor<4xf32>
  }
  %y = megakernel.fused(%a = %w : tensor<4xf32>) -> tensor<4xf32> {
    megakernel.yield %a : tensor<4xf32>
  }
  %z = megakernel.fused(%a = %y : tensor<4xf32>) -> tensor<4xf32> {
    megakernel.yield %a : tensor<4xf32>
  }
  megakernel.return %n, %y, %z : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
