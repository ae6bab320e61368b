// RUN: tk-opt %s --tk-schedule-phases=target=cpu | FileCheck %s

// A step becomes a kernel: inputs, then outputs; independent ops share a phase; a value that another op reads is
// written before; what is returned lives in its output; a new state is committed at the end.
// CHECK-LABEL: megakernel.kernel @train(
// CHECK-SAME: %[[W:.*]]: memref<4xf32> {megakernel.role = #megakernel.role<state>}
// CHECK-SAME: %[[X:.*]]: memref<4xf32> {megakernel.role = #megakernel.role<batch>}
// CHECK-SAME: %[[Y:.*]]: memref<4xf32> {megakernel.role = #megakernel.role<output>}
// CHECK-SAME: %[[N:.*]]: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64}
// CHECK-SAME: target = "cpu"
// CHECK-NEXT: %[[B:.*]] = megakernel.buffer : memref<4xf32>
// CHECK-NEXT: megakernel.phase {
// CHECK-NEXT: megakernel.tile ins(%[[A0:.*]] = %[[X]] : memref<4xf32>) outs(%[[Y]] : memref<4xf32>) sizes [4]
// CHECK-NEXT: megakernel.yield %[[A0]]
// CHECK-NEXT: }
// CHECK-NEXT: }
// CHECK-NEXT: megakernel.phase {
// CHECK-NEXT: megakernel.tile ins(%[[A1:.*]] = %[[Y]] : memref<4xf32>) outs(%[[B]] : memref<4xf32>) sizes [4]
// CHECK-NEXT: megakernel.yield %[[A1]]
// CHECK-NEXT: }
// CHECK-NEXT: }
// CHECK-NEXT: megakernel.commit %[[B]] to %[[N]]
// CHECK-NEXT: megakernel.return
megakernel.step @train(%w: tensor<4xf32> {megakernel.role = #megakernel.role<state>},
                       %x: tensor<4xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<4xf32> {megakernel.role = #megakernel.role<output>},
        tensor<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64}) {
  %y = megakernel.fused(%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    megakernel.yield %a : tensor<4xf32>
  }
  %n = megakernel.fused(%a = %y : tensor<4xf32>) -> tensor<4xf32> {
    megakernel.yield %a : tensor<4xf32>
  }
  megakernel.return %y, %n : tensor<4xf32>, tensor<4xf32>
}

// Two independent ops run in one phase, on different CTAs where there are several.
// CHECK-LABEL: megakernel.kernel @together
// CHECK: megakernel.phase {
// CHECK: megakernel.tile ins({{.*}}) outs({{.*}}) sizes [4] attributes
// CHECK: megakernel.tile ins({{.*}}) outs({{.*}}) sizes [4] first_cta 1 attributes
// CHECK-NOT: megakernel.phase
megakernel.step @together(%x: tensor<4xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<4xf32> {megakernel.role = #megakernel.role<output>},
        tensor<4xf32> {megakernel.role = #megakernel.role<output>}) {
  %y = megakernel.fused(%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    megakernel.yield %a : tensor<4xf32>
  }
  %z = megakernel.fused(%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    megakernel.yield %a : tensor<4xf32>
  }
  megakernel.return %y, %z : tensor<4xf32>, tensor<4xf32>
}
