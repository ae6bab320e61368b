// RUN: not tk-opt %s --tk-schedule-phases=target=sm_70 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: not tk-opt %s --tk-schedule-phases=grid=-1 2>&1 | FileCheck %s --check-prefix=GRID
// RUN: not tk-opt %s --tk-schedule-phases=grid=4294967296 2>&1 | FileCheck %s --check-prefix=GRID
// RUN: not tk-opt %s --tk-schedule-phases="target=cpu grid=1025" 2>&1 | FileCheck %s --check-prefix=WORKERS
// RUN: tk-opt %s --tk-schedule-phases --verify-diagnostics

// GRID: expected 0 to 1056 CTAs, which run at once on sm_90a
// WORKERS: grid is 1025, expected 0 to 1024 CTAs, which run at once on cpu
// TARGET: error: unknown target 'sm_70', expected one of cpu, sm_80, sm_90a
megakernel.step @not_fused(%x: tensor<4xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<4xf32> {megakernel.role = #megakernel.role<output>}) {
  // expected-error @below {{'arith.negf' stands outside of a fused op, expected 'tk-inline-pointwise' to have run}}
  %y = arith.negf %x : tensor<4xf32>
  megakernel.return %y : tensor<4xf32>
}
