// How float32 products are computed is decided at import, kept on step and kernel, and written to the manifest.
// RUN: tk-opt %s --pass-pipeline='builtin.module(tk-import{fp32=tf32x3},tk-fuse)' | FileCheck %s --check-prefix=STEP
// RUN: tk-opt %s --pass-pipeline='builtin.module(tk-import,tk-fuse)' | FileCheck %s --check-prefix=USUAL
// RUN: tk-opt %s --pass-pipeline='builtin.module(tk-import{fp32=tf32x3},tk-fuse,tk-schedule)' \
// RUN:   | FileCheck %s --check-prefix=KERNEL
// RUN: tk-opt %s --pass-pipeline='builtin.module(tk-import{fp32=tf32x3},tk-fuse,tk-schedule,tk-lower-to-cuda)' \
// RUN:   | FileCheck %s --check-prefix=CUDA
// RUN: tk-opt %s --pass-pipeline='builtin.module(tk-import{fp32=tf32x3},tk-fuse,tk-schedule{target=cpu},tk-lower-to-cpu)' \
// RUN:   | FileCheck %s --check-prefix=CPU
// RUN: not tk-opt %s --pass-pipeline='builtin.module(tk-import{fp32=tf32})' 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// STEP: megakernel.step @product{{.*}} attributes {fp32 = #megakernel.fp32<tf32x3>}
// USUAL: megakernel.step @product
// USUAL-NOT: fp32<
// KERNEL: megakernel.kernel @product{{.*}}fp32 = #megakernel.fp32<tf32x3>

// Products of bfloat16 stay as they are.
// CUDA: llvm.mlir.global external @trainkernel_manifest({{.*}}\22fp32_matmul\22:\22tf32x3\22
// CUDA-NOT: {{(memref|scf|vector|arith|builtin)\.}}
// CUDA-DAG: nvvm.mma.sync {{.*}}tf32{{.*}}shape = #nvvm.shape<m = 16, n = 8, k = 8>
// CUDA-DAG: nvvm.mma.sync {{.*}}bf16{{.*}}shape = #nvvm.shape<m = 16, n = 8, k = 16>
// CUDA: llvm.return

// A CPU multiplies in float32 whatever is asked for.
// CPU: llvm.mlir.global external @trainkernel_manifest({{.*}}\22fp32_matmul\22:\22tf32x3\22
// CPU: llvm.intr.fmuladd

// UNKNOWN: unknown way 'tf32' to multiply float32, expected ieee or tf32x3
module attributes {megakernel.manifest = "{\22numerics\22:{\22rounding\22:\22eager\22}}"} {
  func.func @product(%x: tensor<32x64xf32> {megakernel.role = "batch"}, %w: tensor<64x16xf32> {megakernel.role = "batch"},
                     %u: tensor<32x64xbf16> {megakernel.role = "batch"}, %v: tensor<64x16xbf16> {megakernel.role = "batch"})
      -> (tensor<32x16xf32> {megakernel.role = "output"}, tensor<32x16xf32> {megakernel.role = "output"}) {
    %zero = arith.constant 0.0 : f32
    %init = tensor.empty() : tensor<32x16xf32>
    %zeros = linalg.fill ins(%zero : f32) outs(%init : tensor<32x16xf32>) -> tensor<32x16xf32>
    %y = linalg.matmul ins(%x, %w : tensor<32x64xf32>, tensor<64x16xf32>) outs(%zeros : tensor<32x16xf32>) -> tensor<32x16xf32>
    %z = linalg.matmul ins(%u, %v : tensor<32x64xbf16>, tensor<64x16xbf16>) outs(%zeros : tensor<32x16xf32>) -> tensor<32x16xf32>
    return %y, %z : tensor<32x16xf32>, tensor<32x16xf32>
  }
}
