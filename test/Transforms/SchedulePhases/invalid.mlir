// RUN: not tk-opt %s --tk-schedule-phases=target=sm_70 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: tk-opt %s --tk-schedule-phases --verify-diagnostics

// TARGET: error: unknown target 'sm_70', expected one of cpu, sm_80, sm_90a
megakernel.step @not_fused(%x: tensor<4xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<4xf32> {megakernel.role = #megakernel.role<output>}) {
  // expected-error @below {{'arith.negf' stands outside of a fused op, expected 'tk-inline-pointwise' to have run}}
  %y = arith.negf %x : tensor<4xf32>
  megakernel.return %y : tensor<4xf32>
}
