// The update map of a step: constraint S4.
// RUN: tk-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{result 0 is a new state that names no state argument, expected 'megakernel.updates' to be the index of one (S4)}}
megakernel.step @missing(%w: tensor<2xf32> {megakernel.role = #megakernel.role<state>})
    -> (tensor<2xf32> {megakernel.role = #megakernel.role<new_state>}) {
  megakernel.return %w : tensor<2xf32>
}

// -----

// expected-error @below {{result 0 is a new state that names no state argument}}
megakernel.step @updates_the_batch(%x: tensor<2xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<2xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64}) {
  megakernel.return %x : tensor<2xf32>
}

// -----

// An index that is 0 only in 32 bits.
// expected-error @below {{result 0 is a new state that names no state argument}}
megakernel.step @large_index(%w: tensor<2xf32> {megakernel.role = #megakernel.role<state>})
    -> (tensor<2xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 4294967296 : i64}) {
  megakernel.return %w : tensor<2xf32>
}

// -----

// expected-error @below {{result 0 is a new state that names no state argument}}
megakernel.step @negative_index(%w: tensor<2xf32> {megakernel.role = #megakernel.role<state>})
    -> (tensor<2xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = -1 : si64}) {
  megakernel.return %w : tensor<2xf32>
}

// -----

// expected-error @below {{result 0 of type 'tensor<2xf32>' updates argument 0 of type 'tensor<2xf64>', expected equal types (S4)}}
megakernel.step @other_type(%w: tensor<2xf64> {megakernel.role = #megakernel.role<state>},
                            %x: tensor<2xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<2xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64}) {
  megakernel.return %x : tensor<2xf32>
}

// -----

// expected-error @below {{results 0 and 1 both update argument 0, expected one update of each state argument (S4)}}
megakernel.step @twice(%w: tensor<2xf32> {megakernel.role = #megakernel.role<state>})
    -> (tensor<2xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64},
        tensor<2xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64}) {
  megakernel.return %w, %w : tensor<2xf32>, tensor<2xf32>
}

// -----

// expected-error @below {{result 0 has 'megakernel.updates' and the role gradient, expected only new_state results to have it (S4)}}
megakernel.step @update_by_a_gradient(%w: tensor<2xf32> {megakernel.role = #megakernel.role<state>})
    -> (tensor<2xf32> {megakernel.role = #megakernel.role<gradient>, megakernel.updates = 0 : i64}) {
  megakernel.return %w : tensor<2xf32>
}
