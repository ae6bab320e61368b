// The constraints S1 to S5 of megakernel.step.
// RUN: tk-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{argument 0 has type 'tensor<?xf32>', expected a ranked tensor of static shape (S1)}}
megakernel.step @dynamic(%w: tensor<?xf32> {megakernel.role = #megakernel.role<batch>}) {
  megakernel.return
}

// -----

// expected-error @below {{result 0 has type 'f32', expected a ranked tensor of static shape (S1)}}
megakernel.step @no_tensor() -> (f32 {megakernel.role = #megakernel.role<loss>}) {
  %c = arith.constant 0.0 : f32
  megakernel.return %c : f32
}

// -----

// expected-error @below {{argument 0 has type 'tensor<2xindex>', expected elements of f64, f32, bf16, f16, i64, i32, i16, i8 or i1 (S1)}}
megakernel.step @indices(%w: tensor<2xindex> {megakernel.role = #megakernel.role<batch>}) {
  megakernel.return
}

// -----

// expected-error @below {{argument 0 has no role, expected state, batch or constant (S2)}}
megakernel.step @no_role(%w: tensor<2xf32>) {
  megakernel.return
}

// -----

// expected-error @below {{argument 1 has the role loss, expected state, batch or constant (S2)}}
megakernel.step @role_of_a_result(%x: tensor<2xf32> {megakernel.role = #megakernel.role<batch>},
                                  %w: tensor<2xf32> {megakernel.role = #megakernel.role<loss>}) {
  megakernel.return
}

// -----

// expected-error @below {{result 0 has the role batch, expected loss, gradient, new_state or output (S3)}}
megakernel.step @role_of_an_argument(%x: tensor<2xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<2xf32> {megakernel.role = #megakernel.role<batch>}) {
  megakernel.return %x : tensor<2xf32>
}

// -----

// expected-error @below {{result 0 has no role, expected loss, gradient, new_state or output (S3)}}
megakernel.step @no_result_role(%x: tensor<2xf32> {megakernel.role = #megakernel.role<batch>}) -> tensor<2xf32> {
  megakernel.return %x : tensor<2xf32>
}

// -----

// expected-error @below {{result 0 has 'megakernel.gradient_of' 1 : i64, expected the index of a state argument (S5)}}
megakernel.step @gradient_of_the_batch(%w: tensor<2xf32> {megakernel.role = #megakernel.role<state>},
                                       %x: tensor<2xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<2xf32> {megakernel.role = #megakernel.role<gradient>, megakernel.gradient_of = 1 : i64}) {
  megakernel.return %x : tensor<2xf32>
}

// -----

megakernel.step @wrong_return(%x: tensor<2xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<2xf32> {megakernel.role = #megakernel.role<output>}) {
  // expected-error @below {{returns (), expected ('tensor<2xf32>') as its parent declares}}
  megakernel.return
}
