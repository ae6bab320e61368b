// Updates that are in order though they depend on nothing else that the loss is computed from.
// RUN: tk-opt %s --tk-verify-autodiff | FileCheck %s

// The gradient by a bias that the loss is linear in is a constant; that by what only a regulariser reads depends on
// nothing else.
// CHECK-LABEL: megakernel.step @constant_gradient
megakernel.step @constant_gradient(
    %b: tensor<4xf32> {megakernel.role = #megakernel.role<state>, megakernel.differentiated},
    %x: tensor<4xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64,
                       megakernel.uses_gradients = array<i64: 0>, megakernel.uses_values = array<i64: 0>}) {
  %one = arith.constant dense<1.0> : tensor<4xf32>
  %new = arith.subf %b, %one : tensor<4xf32>
  megakernel.return %new : tensor<4xf32>
}

// A schedule that the loss reads is not differentiated, or is a scalar.
// CHECK-LABEL: megakernel.step @schedules
megakernel.step @schedules(
    %w: tensor<4xf32> {megakernel.role = #megakernel.role<state>, megakernel.differentiated},
    %t: tensor<4xf32> {megakernel.role = #megakernel.role<state>},
    %s: tensor<f32> {megakernel.role = #megakernel.role<state>, megakernel.differentiated},
    %x: tensor<4xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64,
                       megakernel.uses_gradients = array<i64: 0>, megakernel.uses_values = array<i64: 0>},
        tensor<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 1 : i64},
        tensor<f32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 2 : i64}) {
  %new_w = arith.subf %w, %x : tensor<4xf32>
  %new_t = arith.addf %t, %t : tensor<4xf32>
  %new_s = arith.addf %s, %s : tensor<f32>
  megakernel.return %new_w, %new_t, %new_s : tensor<4xf32>, tensor<4xf32>, tensor<f32>
}

// An average of another parameter, and a parameter that is kept.
// CHECK-LABEL: megakernel.step @average
megakernel.step @average(
    %w: tensor<4xf32> {megakernel.role = #megakernel.role<state>, megakernel.differentiated},
    %v: tensor<4xf32> {megakernel.role = #megakernel.role<state>, megakernel.differentiated},
    %kept: tensor<4xf32> {megakernel.role = #megakernel.role<state>, megakernel.differentiated},
    %x: tensor<4xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64,
                       megakernel.uses_gradients = array<i64: 0>, megakernel.uses_values = array<i64: 0>},
        tensor<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 1 : i64,
                       megakernel.uses_gradients = array<i64: 0>, megakernel.uses_values = array<i64: 0, 1>},
        tensor<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 2 : i64}) {
  %new_w = arith.subf %w, %x : tensor<4xf32>
  %new_v = arith.addf %v, %new_w : tensor<4xf32>
  megakernel.return %new_w, %new_v, %kept : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// Without marks: where something is trained, other state that the loss reads may be a schedule.
// CHECK-LABEL: megakernel.step @by_hand
megakernel.step @by_hand(%w: tensor<f32> {megakernel.role = #megakernel.role<state>},
                         %t: tensor<f32> {megakernel.role = #megakernel.role<state>},
                         %x: tensor<f32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<f32> {megakernel.role = #megakernel.role<loss>},
        tensor<f32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
        tensor<f32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 1 : i64}) {
  %product = arith.mulf %w, %x : tensor<f32>
  %loss = arith.mulf %product, %t : tensor<f32>
  %new_w = arith.subf %w, %x : tensor<f32>
  %new_t = arith.addf %t, %t : tensor<f32>
  megakernel.return %loss, %new_w, %new_t : tensor<f32>, tensor<f32>, tensor<f32>
}

// State that is kept, whatever gradient was taken.
// CHECK-LABEL: megakernel.step @kept
megakernel.step @kept(%w: tensor<4xf32> {megakernel.role = #megakernel.role<state>, megakernel.differentiated})
    -> (tensor<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64}) {
  megakernel.return %w : tensor<4xf32>
}
