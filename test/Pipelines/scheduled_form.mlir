// The stage schedule, for every target.
// RUN: tk-opt %S/Inputs/descent.mlir --pass-pipeline='builtin.module(tk-import,tk-fuse,tk-schedule)' \
// RUN:   | FileCheck %s --check-prefixes=CHECK,SM90
// RUN: tk-opt %S/Inputs/descent.mlir --pass-pipeline='builtin.module(tk-import,tk-fuse,tk-schedule{target=sm_80})' \
// RUN:   | FileCheck %s --check-prefixes=CHECK,SM80
// RUN: tk-opt %S/Inputs/descent.mlir --pass-pipeline='builtin.module(tk-import,tk-fuse,tk-schedule{target=cpu})' \
// RUN:   | FileCheck %s --check-prefixes=CHECK,CPU
// RUN: tk-opt %S/Inputs/descent.mlir --pass-pipeline='builtin.module(tk-import,tk-fuse,tk-schedule{grid=6})' \
// RUN:   | FileCheck %s --check-prefixes=CHECK,GRID
// RUN: not tk-opt %S/Inputs/descent.mlir --pass-pipeline='builtin.module(tk-import,tk-fuse,tk-schedule{target=sm_1})' 2>&1 \
// RUN:   | FileCheck %s --check-prefix=UNKNOWN

// CHECK: megakernel.kernel @step(
// SM90-SAME: target = "sm_90a"
// SM80-SAME: cluster = 1 : i64
// SM80-SAME: target = "sm_80"
// CPU-SAME: target = "cpu"
// GRID-SAME: grid = {{6|8}} : i64
// Everything has its place and its order; the update is written in place.
// CHECK-NOT: megakernel.commit
// On a GPU this small step runs on one CTA, which keeps what it makes.
// SM90: megakernel.buffer {part = {{[0-9]+}} : i64, shared_at = 0 : i64}
// SM80: megakernel.buffer {part = {{[0-9]+}} : i64, shared_at = 0 : i64}
// GRID: megakernel.buffer {part = {{[0-9]+}} : i64, shared_at = 0 : i64}
// CPU: megakernel.buffer {offset = 0 : i64}
// CHECK: megakernel.phase
// CHECK: megakernel.barrier
// CHECK: megakernel.phase
// CHECK: megakernel.repeat
// CHECK-NEXT: megakernel.return

// UNKNOWN: error: unknown target 'sm_1', expected one of cpu, sm_80, sm_90a
