// What tk-translate writes is what ptxas takes.
// REQUIRES: ptxas
// RUN: tk-opt %S/../Pipelines/Inputs/descent.mlir \
// RUN:   --pass-pipeline='builtin.module(tk-import,tk-fuse,tk-schedule{target=sm_80},tk-lower-to-cuda{arch=sm_80})' \
// RUN:   | tk-translate --tk-to-ptx -o %t.ptx
// RUN: %ptxas -arch=sm_80 %t.ptx -o %t.cubin
// RUN: llvm-readelf -h -s %t.cubin | FileCheck %s

// CHECK: Machine: {{.*}}CUDA
// CHECK-DAG: OBJECT GLOBAL {{.*}} trainkernel_manifest
// CHECK-DAG: OBJECT GLOBAL {{.*}} trainkernel_digest
// CHECK-DAG: FUNC GLOBAL {{.*}} step
