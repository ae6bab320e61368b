// What is not lowered cannot be translated.
// RUN: not tk-translate --tk-to-ptx --split-input-file %s -o /dev/null 2>&1 | FileCheck %s --check-prefix=PTX
// RUN: not tk-translate --tk-to-object --split-input-file %s -o /dev/null 2>&1 | FileCheck %s --check-prefix=OBJECT

// PTX: error: holds 0 GPU modules, expected one
// OBJECT: error: cannot be converted to LLVM IR: missing `LLVMTranslationDialectInterface` registration for dialect for op: megakernel.kernel
megakernel.kernel @scheduled() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.return
}

// -----

// PTX: error: has not one target, expected 'nvvm-attach-target' to have run once
module attributes {gpu.container_module} {
  gpu.module @no_target {
    llvm.func @step() attributes {gpu.kernel} {
      llvm.return
    }
  }
}

// -----

// OBJECT: error: is lowered for a GPU, expected 'tk-lower-to-cpu' to have run
// PTX: error: holds 2 GPU modules, expected one
module attributes {gpu.container_module} {
  gpu.module @one {
  }
  gpu.module @two {
  }
}
