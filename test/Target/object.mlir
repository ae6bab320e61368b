// RUN: tk-opt %S/../Pipelines/Inputs/descent.mlir \
// RUN:   --pass-pipeline='builtin.module(tk-import,tk-fuse,tk-schedule{target=cpu},tk-lower-to-cpu)' -o %t.mlir
// RUN: tk-translate --tk-to-object %t.mlir -o %t.o
// RUN: llvm-nm %t.o | FileCheck %s
// RUN: tk-translate --tk-to-object --tk-cpu=znver4 --tk-cpu-features=+avx512f,+avx512vl %t.mlir -o %t.wide.o
// RUN: llvm-objdump -d %t.wide.o | FileCheck %s --check-prefix=WIDE
// RUN: not tk-translate --tk-to-object --tk-cpu=pentium99 %t.mlir -o %t.none 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// RUN: not tk-translate --tk-to-object --tk-cpu-features=avx2 %t.mlir -o %t.none 2>&1 | FileCheck %s --check-prefix=UNSIGNED
// RUN: not tk-translate --tk-to-object --tk-cpu-features=+avx2,-none %t.mlir -o %t.none 2>&1 \
// RUN:   | FileCheck %s --check-prefix=FEATURE

// RUN: not tk-translate --tk-to-object --tk-opt-level=4 %t.mlir -o %t.none 2>&1 | FileCheck %s --check-prefix=LEVEL
// RUN: tk-translate --tk-to-object --tk-opt-level=0 %t.mlir -o %t.plain.o

// The step, its manifest and its digest; the worker function is local, and nothing is missing.
// CHECK-DAG: D trainkernel_digest
// CHECK-DAG: D trainkernel_manifest
// CHECK-DAG: T step
// CHECK-NOT: {{ U }}
// CHECK-NOT: T step_worker

// WIDE: vfmadd{{.*}}zmm

// UNSIGNED: error: unknown CPU feature 'avx2', expected + or - and one of 'llc -mattr=help'
// FEATURE: error: unknown CPU feature '-none', expected + or - and one of 'llc -mattr=help'
// UNKNOWN: error: unknown CPU 'pentium99', expected one of 'llc -mcpu=help'
// LEVEL: error: '--tk-opt-level' is 4, expected 0 to 3
