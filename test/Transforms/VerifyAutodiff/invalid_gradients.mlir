// RUN: tk-opt %s --tk-verify-autodiff --split-input-file --verify-diagnostics

// expected-error @below {{the gradient result 1 has type 'tensor<bf16>', expected 'tensor<f32>' as its parameter 'state.w'}}
megakernel.step @type(%w: tensor<f32> {megakernel.role = #megakernel.role<state>, megakernel.path = "state.w"},
                      %x: tensor<bf16> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<f32> {megakernel.role = #megakernel.role<loss>},
        tensor<bf16> {megakernel.role = #megakernel.role<gradient>, megakernel.gradient_of = 0 : i64},
        tensor<f32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64}) {
  megakernel.return %w, %x, %w : tensor<f32>, tensor<bf16>, tensor<f32>
}

// -----

// expected-error @below {{returns the gradient result 0 but no loss, expected a loss}}
megakernel.step @no_loss(%w: tensor<f32> {megakernel.role = #megakernel.role<state>},
                         %x: tensor<f32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<f32> {megakernel.role = #megakernel.role<gradient>, megakernel.gradient_of = 0 : i64},
        tensor<f32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64}) {
  megakernel.return %x, %w : tensor<f32>, tensor<f32>
}

// -----

// expected-error @below {{the loss 'out.loss' does not depend on argument 0, expected it to, as 'out.g' is its gradient}}
// expected-note @below {{a gradient that is zero on purpose is to be left out of those that the step returns}}
megakernel.step @independent(%w: tensor<f32> {megakernel.role = #megakernel.role<state>},
                             %x: tensor<f32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<f32> {megakernel.role = #megakernel.role<loss>, megakernel.path = "out.loss"},
        tensor<f32> {megakernel.role = #megakernel.role<gradient>, megakernel.gradient_of = 0 : i64,
                     megakernel.path = "out.g"},
        tensor<f32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64}) {
  megakernel.return %x, %x, %w : tensor<f32>, tensor<f32>, tensor<f32>
}

// -----

// A value that only a body captures counts as well.
// expected-error @below {{the loss result 0 does not depend on argument 0}}
// expected-note @below {{a gradient that is zero on purpose is to be left out of those that the step returns}}
megakernel.step @captured(%w: tensor<f32> {megakernel.role = #megakernel.role<state>},
                          %v: tensor<f32> {megakernel.role = #megakernel.role<state>})
    -> (tensor<f32> {megakernel.role = #megakernel.role<loss>},
        tensor<f32> {megakernel.role = #megakernel.role<gradient>, megakernel.gradient_of = 0 : i64},
        tensor<f32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
        tensor<f32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 1 : i64}) {
  %init = tensor.empty() : tensor<f32>
  %loss = linalg.generic {indexing_maps = [affine_map<() -> ()>], iterator_types = []} outs(%init : tensor<f32>) {
  ^bb0(%out: f32):
    %x = tensor.extract %v[] : tensor<f32>
    linalg.yield %x : f32
  } -> tensor<f32>
  megakernel.return %loss, %w, %w, %v : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
}
