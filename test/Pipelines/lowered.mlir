// The last stages before code.
// RUN: tk-opt %S/Inputs/descent.mlir --pass-pipeline='builtin.module(tk-import,tk-fuse,tk-schedule,tk-lower-to-cuda)' \
// RUN:   | FileCheck %s --check-prefix=CUDA
// RUN: tk-opt %S/Inputs/descent.mlir \
// RUN:   --pass-pipeline='builtin.module(tk-import,tk-fuse,tk-schedule{target=sm_80},tk-lower-to-cuda{arch=sm_80})' \
// RUN:   | FileCheck %s --check-prefix=SM80
// RUN: tk-opt %S/Inputs/descent.mlir --pass-pipeline='builtin.module(tk-import,tk-fuse,tk-schedule{target=cpu},tk-lower-to-cpu)' \
// RUN:   | FileCheck %s --check-prefix=CPU

// One kernel, with the manifest beside it, that now has the part about the kernel.
// CUDA: gpu.module @step_module [#nvvm.target<O = 3, chip = "sm_90a"
// CUDA: llvm.mlir.global external @trainkernel_digest
// CUDA: llvm.mlir.global external @trainkernel_manifest("{\22kernel\22:{{.*}}\22name\22:\22step\22,\22numerics\22:{\22fp32_matmul\22:\22ieee\22}}\00")
// CUDA: llvm.func @step({{.*}}) attributes {{.*}}gpu.kernel
// CUDA-NOT: {{(memref|scf|vector|arith|builtin)\.}}
// CUDA: llvm.return

// SM80: gpu.module @step_module [#nvvm.target<O = 3, chip = "sm_80"

// CPU: llvm.mlir.global external @trainkernel_manifest("{\22kernel\22:{{.*}}\22name\22:\22step\22,\22numerics\22:{\22fp32_matmul\22:\22ieee\22}}\00")
// CPU: llvm.func @step(%{{.*}}: !llvm.ptr, %{{.*}}: i64, %{{.*}}: i64, %{{.*}}: !llvm.ptr, %{{.*}}: !llvm.ptr) {
// CPU: llvm.call @step_worker
// CPU: llvm.func internal @step_worker
// CPU-NOT: {{(memref|scf|vector|arith|builtin)\.}}
// CPU: llvm.return
