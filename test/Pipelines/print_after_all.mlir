// Every pass can be watched, under its own name.
// RUN: tk-opt %S/Inputs/descent.mlir --pass-pipeline='builtin.module(tk-import,tk-fuse,tk-schedule{target=cpu})' \
// RUN:   --mlir-print-ir-after-all -o /dev/null 2>&1 | FileCheck %s

// CHECK: IR Dump After {{.*}}(tk-import-linalg)
// CHECK: megakernel.step
// CHECK: IR Dump After {{.*}}(linalg-generalize-named-ops)
// CHECK: IR Dump After {{.*}}(tk-normalize-numerics)
// CHECK: IR Dump After {{.*}}(tk-verify-autodiff)
// CHECK: IR Dump After {{.*}}(tk-inline-pointwise)
// CHECK: megakernel.fused
// CHECK: IR Dump After {{.*}}(tk-schedule-phases{{.*}})
// CHECK: megakernel.commit
// CHECK: IR Dump After {{.*}}(tk-commit-state)
// CHECK-NOT: megakernel.commit
// CHECK: IR Dump After {{.*}}(tk-insert-barriers)
// CHECK: megakernel.barrier
// CHECK: IR Dump After {{.*}}(tk-plan-buffers)
// CHECK: arena_bytes
// CHECK: IR Dump After {{.*}}(tk-check-schedule)
