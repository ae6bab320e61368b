// RUN: tk-opt %s --tk-import-linalg | FileCheck %s

// A function becomes a step of its name and body; roles become the dialect's attribute, all else stays as it was.
// CHECK-LABEL: megakernel.step @train(
// CHECK-SAME: %[[W:.*]]: tensor<4xf32> {megakernel.path = "state[0]", megakernel.role = #megakernel.role<state>}
// CHECK-SAME: %[[X:.*]]: tensor<4xf32> {megakernel.role = #megakernel.role<batch>}
// CHECK-SAME: %[[C:.*]]: tensor<f32> {megakernel.role = #megakernel.role<constant>})
// CHECK-SAME: -> (tensor<f32> {megakernel.role = #megakernel.role<loss>}
// CHECK-SAME: tensor<4xf32> {megakernel.gradient_of = 0 : i64, megakernel.role = #megakernel.role<gradient>}
// CHECK-SAME: tensor<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64}
// CHECK-SAME: tensor<4xf32> {megakernel.role = #megakernel.role<output>}) {
// CHECK-NEXT: %[[S:.*]] = linalg.add ins(%[[W]], %[[X]] : tensor<4xf32>, tensor<4xf32>) outs(%[[X]] : tensor<4xf32>)
// CHECK-NEXT: megakernel.return %[[C]], %[[X]], %[[S]], %[[X]]
// CHECK-NOT: func.func
func.func @train(%w: tensor<4xf32> {megakernel.role = "state", megakernel.path = "state[0]"},
                 %x: tensor<4xf32> {megakernel.role = "batch"},
                 %c: tensor<f32> {megakernel.role = "constant"})
    -> (tensor<f32> {megakernel.role = "loss"},
        tensor<4xf32> {megakernel.role = "gradient", megakernel.gradient_of = 0 : i64},
        tensor<4xf32> {megakernel.role = "new_state", megakernel.updates = 0 : i64},
        tensor<4xf32> {megakernel.role = "output"}) {
  %s = linalg.add ins(%w, %x : tensor<4xf32>, tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  return %c, %x, %s, %x : tensor<f32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
