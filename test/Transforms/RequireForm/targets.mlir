// A kernel is lowered for what it was scheduled for.
// RUN: tk-opt %s --tk-require-form="form=kernel target=sm_80" | FileCheck %s
// RUN: not tk-opt %s --tk-require-form="form=kernel target=cpu" 2>&1 | FileCheck %s --check-prefix=CPU
// RUN: not tk-opt %s --tk-lower-to-cuda=arch=sm_90a 2>&1 | FileCheck %s --check-prefix=ARCH
// RUN: not tk-opt %s --tk-lower-to-cuda=arch= 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not tk-opt %s --tk-lower-to-cuda=arch=sm_1 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// CHECK: megakernel.kernel @scheduled
// CPU: is scheduled for 'sm_80', expected 'cpu'
// ARCH: is scheduled for 'sm_80', expected 'sm_90a'
// NONE: unknown target '', expected one of cpu, sm_80, sm_90a
// UNKNOWN: unknown target 'sm_1', expected one of cpu, sm_80, sm_90a
megakernel.kernel @scheduled() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 256 : i64, target = "sm_80"} {
  megakernel.return
}
