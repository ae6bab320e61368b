// RUN: tk-opt %s --tk-embed-manifest --split-input-file | FileCheck %s

// On the CPU the manifest and the digest are globals of the module; the attribute goes.
// CHECK-LABEL: module {
// CHECK-NEXT: llvm.mlir.global external @trainkernel_digest("{{(\\FF)+}}")
// CHECK-SAME: alignment = 1 : i64
// CHECK-NEXT: llvm.mlir.global external @trainkernel_manifest("{\22name\22:\22step\22}\00")
// CHECK-NEXT: llvm.func @step
module attributes {megakernel.manifest = "{\22name\22:\22step\22}"} {
  llvm.func @step() {
    llvm.return
  }
}

// -----

// On a GPU they are in the GPU module, in global memory.
// CHECK-LABEL: gpu.module @code
// CHECK-NEXT: llvm.mlir.global external @trainkernel_digest({{.*}}) {addr_space = 1 : i32
// CHECK-NEXT: llvm.mlir.global external @trainkernel_manifest("{}\00") {addr_space = 1 : i32
// CHECK-NEXT: llvm.func @step
module attributes {megakernel.manifest = "{}", gpu.container_module} {
  gpu.module @code {
    llvm.func @step() {
      llvm.return
    }
  }
}

// -----

// Without a manifest nothing is added.
// CHECK-LABEL: module {
// CHECK-NEXT: llvm.func @bare
// CHECK-NOT: llvm.mlir.global
module {
  llvm.func @bare() {
    llvm.return
  }
}
