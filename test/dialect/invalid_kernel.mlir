// The constraints K1, K2 and K4 of megakernel.kernel. K3 stands with the other ops of the scheduled form.
// RUN: tk-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{argument 0 has type 'memref<?xf32>', expected a contiguous memref of static shape (K1)}}
megakernel.kernel @dynamic(%x: memref<?xf32>) attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.return
}

// -----

// expected-error @below {{argument 0 has type 'memref<4xf32, strided<[2]>>', expected a contiguous memref of static shape (K1)}}
megakernel.kernel @strided(%x: memref<4xf32, strided<[2]>>)
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.return
}

// -----

// expected-error @below {{argument 0 has type 'memref<4xcomplex<f32>>', expected a contiguous memref of static shape (K1)}}
megakernel.kernel @complex(%x: memref<4xcomplex<f32>>)
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.return
}

// -----

// expected-error @below {{has a grid of 6 and clusters of 4, expected a positive multiple (K2)}}
megakernel.kernel @grid() attributes {grid = 6 : i64, cluster = 4 : i64, threads = 32 : i64} {
  megakernel.return
}

// -----

// expected-error @below {{has a grid of 4 and clusters of 0, expected a positive multiple (K2)}}
megakernel.kernel @cluster() attributes {grid = 4 : i64, cluster = 0 : i64, threads = 32 : i64} {
  megakernel.return
}

// -----

// expected-error @below {{has 33 threads, expected a multiple of 32 from 32 to 1024 (K2)}}
megakernel.kernel @threads() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 33 : i64} {
  megakernel.return
}

// -----

// expected-error @below {{has a size of -16 bytes, expected none below 0 (K2)}}
megakernel.kernel @arena()
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, arena_bytes = -16 : i64} {
  megakernel.return
}

// -----

// expected-error @below {{holds an op that is not allowed in a kernel, expected buffers, their reshapes, phases, barriers, commits and a repeat (K4)}}
megakernel.kernel @allocation() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  // expected-note @below {{the op is 'memref.alloc'}}
  %b = memref.alloc() : memref<4xf32>
  megakernel.return
}

// -----

// expected-error @below {{must end with 'megakernel.return'}}
megakernel.kernel @no_return() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<4xf32>
}
