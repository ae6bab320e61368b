// RUN: tk-opt %s --tk-verify-autodiff --split-input-file --verify-diagnostics

// expected-error @below {{results 'out[0]' and result 1 are both the loss, expected one loss}}
megakernel.step @two_losses(%x: tensor<f32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<f32> {megakernel.role = #megakernel.role<loss>, megakernel.path = "out[0]"},
        tensor<f32> {megakernel.role = #megakernel.role<loss>}) {
  megakernel.return %x, %x : tensor<f32>, tensor<f32>
}

// -----

// expected-error @below {{the loss result 0 has type 'tensor<1xf32>', expected a scalar of floating-point type}}
megakernel.step @loss_shape(%x: tensor<1xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<1xf32> {megakernel.role = #megakernel.role<loss>}) {
  megakernel.return %x : tensor<1xf32>
}

// -----

// expected-error @below {{the loss result 0 has type 'tensor<i32>', expected a scalar of floating-point type}}
megakernel.step @loss_type(%x: tensor<i32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<i32> {megakernel.role = #megakernel.role<loss>}) {
  megakernel.return %x : tensor<i32>
}

// -----

// expected-error @below {{the state 'state.w' has no update, expected exactly one new state; return it unchanged to keep it}}
megakernel.step @no_update(%w: tensor<f32> {megakernel.role = #megakernel.role<state>, megakernel.path = "state.w"})
    -> (tensor<f32> {megakernel.role = #megakernel.role<output>}) {
  megakernel.return %w : tensor<f32>
}

// -----

megakernel.step @decay_only(%w: tensor<f32> {megakernel.role = #megakernel.role<state>, megakernel.path = "state.w"},
                            %x: tensor<f32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<f32> {megakernel.role = #megakernel.role<loss>},
        tensor<f32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64}) {
  %loss = arith.mulf %w, %x : tensor<f32>
  // expected-error @below {{the update of 'state.w' uses no gradient of the loss, expected it to depend on one}}
  // expected-note @below {{if the step is to train nothing, declare that it has no loss: --loss '', or StepRoles(loss=None) in Python}}
  %decayed = arith.addf %w, %w : tensor<f32>
  megakernel.return %loss, %decayed : tensor<f32>, tensor<f32>
}
