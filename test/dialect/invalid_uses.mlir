// What results are said to be computed from: constraint S6.
// RUN: tk-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{result 0 has 'megakernel.uses_gradients' array<i64: 1>, expected an array of argument indices (S6)}}
megakernel.step @uses_no_argument(%x: tensor<2xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<2xf32> {megakernel.role = #megakernel.role<output>, megakernel.uses_gradients = array<i64: 1>}) {
  megakernel.return %x : tensor<2xf32>
}

// -----

// expected-error @below {{result 0 has 'megakernel.uses_values' 0 : i64, expected an array of argument indices (S6)}}
megakernel.step @uses_no_array(%x: tensor<2xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<2xf32> {megakernel.role = #megakernel.role<output>, megakernel.uses_values = 0 : i64}) {
  megakernel.return %x : tensor<2xf32>
}
