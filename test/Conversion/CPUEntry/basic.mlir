// RUN: tk-opt %s --tk-emit-cpu-entry | FileCheck %s

// The entry loads the buffers from its first argument and hands the rest on.
// CHECK-LABEL: llvm.func @step
// CHECK-SAME: (%[[PARAMS:.*]]: !llvm.ptr, %[[WORKER:.*]]: i64, %[[WORKERS:.*]]: i64, %[[CONTEXT:.*]]: !llvm.ptr, %[[BARRIER:.*]]: !llvm.ptr) {
// CHECK-NEXT: %[[SLOT0:.*]] = llvm.getelementptr %[[PARAMS]][0]
// CHECK-NEXT: %[[X:.*]] = llvm.load %[[SLOT0]] : !llvm.ptr -> !llvm.ptr
// CHECK-NEXT: %[[SLOT1:.*]] = llvm.getelementptr %[[PARAMS]][1]
// CHECK-NEXT: %[[Y:.*]] = llvm.load %[[SLOT1]]
// CHECK-NEXT: llvm.call @step_worker(%[[X]], %[[Y]], %[[WORKER]], %[[WORKERS]], %[[CONTEXT]], %[[BARRIER]])
// CHECK-NEXT: llvm.return
// The worker is nobody else's, and nothing is left to be done.
// CHECK: llvm.func internal @step_worker
// CHECK-NOT: megakernel.entry
llvm.func @step_worker(%x: !llvm.ptr, %y: !llvm.ptr, %worker: i64, %workers: i64, %context: !llvm.ptr,
                       %barrier: !llvm.ptr) attributes {megakernel.entry = "step"} {
  llvm.return
}

// Other functions get no entry.
// CHECK: llvm.func @helper(%{{.*}}: i64) {
// CHECK-NEXT: llvm.return
// CHECK-NOT: llvm.func
llvm.func @helper(%n: i64) {
  llvm.return
}
