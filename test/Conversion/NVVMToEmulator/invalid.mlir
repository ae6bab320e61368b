// RUN: tk-opt %s --convert-nvvm-to-emulator --split-input-file --verify-diagnostics

// expected-error @below {{holds 0 GPU modules, expected one}}
module {}

// -----

gpu.module @module {
  llvm.func @step(%n: i32) attributes {nvvm.kernel} {
    // expected-error @below {{is not known to the emulator}}
    %v = nvvm.redux.sync add %n, %n : i32 -> i32
    llvm.return
  }
}

// -----

gpu.module @module {
  llvm.func @step() attributes {nvvm.kernel} {
    // expected-error @below {{is the inline PTX 'membar.gl;', which the emulator does not know}}
    llvm.inline_asm has_side_effects "membar.gl;", "" : () -> ()
    llvm.return
  }
}

// -----

gpu.module @module {
  llvm.func @__nv_j0f(f32) -> f32
  llvm.func @step(%x: f32) attributes {nvvm.kernel} {
    // expected-error @below {{calls '__nv_j0f' of the device library, which the emulator does not know}}
    %y = llvm.call @__nv_j0f(%x) : (f32) -> f32
    llvm.return
  }
}

// -----

gpu.module @module {
  llvm.func @step(%x: !llvm.ptr, %n: i32) attributes {nvvm.kernel} {
    // expected-error @below {{is not known to the emulator}}
    %y = llvm.atomicrmw add %x, %n monotonic : !llvm.ptr, i32
    llvm.return
  }
}

// -----

gpu.module @module {
  // expected-error @below {{is shared memory of a fixed size, which the emulator does not know}}
  llvm.mlir.global internal @shared() {addr_space = 3 : i32} : !llvm.array<16 x i8>
}

// -----

gpu.module @module {
  llvm.func @step(%a: i32, %c: f32) attributes {nvvm.kernel} {
    // expected-error @below {{is no product of bf16, f16 or tf32 of 16x8, accumulated in f32, which the emulator does not know}}
    %d = nvvm.mma.sync A[%a] B[%a] C[%a, %a]
      {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, multiplicandAPtxType = #nvvm.mma_type<s8>,
       multiplicandBPtxType = #nvvm.mma_type<s8>, intOverflowBehavior = #nvvm.mma_int_overflow<wrapped>,
       shape = #nvvm.shape<m = 8, n = 8, k = 16>} : (i32, i32, i32) -> !llvm.struct<(i32, i32)>
    llvm.return
  }
}
