// Updates that are not by the gradient of what they update.
// RUN: tk-opt %s --tk-verify-autodiff --split-input-file --verify-diagnostics

megakernel.step @forgotten(%w: tensor<4xf32> {megakernel.role = #megakernel.role<state>, megakernel.path = "s.w",
                                              megakernel.differentiated},
                           %x: tensor<4xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<4xf32> {megakernel.role = #megakernel.role<output>, megakernel.uses_gradients = array<i64: 0>},
        tensor<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64,
                       megakernel.uses_gradients = array<i64>, megakernel.uses_values = array<i64: 0, 1>}) {
  // expected-error @below {{the update of 's.w' uses no gradient, expected the gradient by it, which the step takes}}
  // expected-note @below {{to keep 's.w' return it unchanged; to take no gradient by it use it with .detach() in the loss}}
  %new = arith.addf %w, %x : tensor<4xf32>
  megakernel.return %x, %new : tensor<4xf32>, tensor<4xf32>
}

// -----

megakernel.step @of_another(%w: tensor<4xf32> {megakernel.role = #megakernel.role<state>, megakernel.differentiated},
                            %v: tensor<4xf32> {megakernel.role = #megakernel.role<state>, megakernel.differentiated},
                            %x: tensor<4xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64,
                       megakernel.uses_gradients = array<i64: 1>, megakernel.uses_values = array<i64: 0>},
        tensor<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 1 : i64,
                       megakernel.uses_gradients = array<i64: 1>, megakernel.uses_values = array<i64: 1>}) {
  // expected-error @below {{the update of argument 0 uses the gradient by argument 1, expected that by argument 0}}
  // expected-note @below {{to keep argument 0 return it unchanged}}
  %new_w = arith.subf %w, %x : tensor<4xf32>
  %new_v = arith.subf %v, %x : tensor<4xf32>
  megakernel.return %new_w, %new_v : tensor<4xf32>, tensor<4xf32>
}

// -----

megakernel.step @returned_of_another(
    %w: tensor<f32> {megakernel.role = #megakernel.role<state>, megakernel.differentiated},
    %v: tensor<f32> {megakernel.role = #megakernel.role<state>, megakernel.differentiated})
    -> (tensor<f32> {megakernel.role = #megakernel.role<loss>},
        tensor<f32> {megakernel.role = #megakernel.role<gradient>, megakernel.gradient_of = 0 : i64,
                     megakernel.uses_gradients = array<i64: 1>},
        tensor<f32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
        tensor<f32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 1 : i64}) {
  %loss = arith.mulf %w, %v : tensor<f32>
  // expected-error @below {{the gradient result 1 is computed from that by argument 1, expected that by its parameter argument 0}}
  %gradient = arith.addf %w, %w : tensor<f32>
  megakernel.return %loss, %gradient, %w, %v : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
}

// -----

// Without marks the gradient that is returned tells.
megakernel.step @returned_and_forgotten(%w: tensor<4xf32> {megakernel.role = #megakernel.role<state>},
                                        %x: tensor<4xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<f32> {megakernel.role = #megakernel.role<loss>},
        tensor<4xf32> {megakernel.role = #megakernel.role<gradient>, megakernel.gradient_of = 0 : i64},
        tensor<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64}) {
  %zero = arith.constant dense<0.0> : tensor<f32>
  %loss = linalg.dot ins(%w, %x : tensor<4xf32>, tensor<4xf32>) outs(%zero : tensor<f32>) -> tensor<f32>
  // expected-error @below {{the update of argument 0 does not depend on argument 1, expected it to use the gradient result 1, which does}}
  %new = arith.addf %w, %w : tensor<4xf32>
  megakernel.return %loss, %x, %new : tensor<f32>, tensor<4xf32>, tensor<4xf32>
}
