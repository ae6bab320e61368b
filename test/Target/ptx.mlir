// RUN: tk-opt %S/../Pipelines/Inputs/descent.mlir \
// RUN:   --pass-pipeline='builtin.module(tk-import,tk-fuse,tk-schedule,tk-lower-to-cuda)' -o %t.mlir
// RUN: tk-translate --tk-to-ptx %t.mlir -o %t.ptx
// RUN: FileCheck %s < %t.ptx
// The text ends with a line, not with a NUL.
// RUN: tail -c 1 %t.ptx | od -An -c | FileCheck %s --check-prefix=END

// CHECK: .target sm_90a
// CHECK-DAG: .visible .global .align 1 .b8 trainkernel_digest[32] = {255, 255,
// CHECK-DAG: .visible .global .align 1 .b8 trainkernel_manifest[
// CHECK: .visible .entry step(
// CHECK: .reqntid
// CHECK: ret;
// END: {{^ +\\n$}}
