// RUN: tk-opt %s --tk-emit-cpu-entry --split-input-file --verify-diagnostics

// expected-error @below {{has the attribute 'megakernel.entry' and the type '!llvm.func<void (i64)>', expected pointers and i64, then worker and number of workers (i64), context and barrier (pointers)}}
llvm.func @too_few(%n: i64) attributes {megakernel.entry = "step"} {
  llvm.return
}

// -----

// expected-error @below {{has the attribute 'megakernel.entry'}}
llvm.func @narrow_parameter(%n: i32, %w: i64, %ws: i64, %c: !llvm.ptr, %b: !llvm.ptr)
    attributes {megakernel.entry = "step"} {
  llvm.return
}

// -----

// expected-error @below {{has the attribute 'megakernel.entry'}}
llvm.func @declared(i64, i64, !llvm.ptr, !llvm.ptr) attributes {megakernel.entry = "step"}
