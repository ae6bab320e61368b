// Constraints on buffers on chip: B3 and B4.
// RUN: tk-opt %s --split-input-file --verify-diagnostics

megakernel.kernel @part_alone() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  // expected-error @below {{has parts, expected a 'shared_at' that is a non-negative multiple of 16, a 'part' and no 'offset' (B3)}}
  %b = megakernel.buffer {part = 4 : i64} : memref<4xf32>
  megakernel.return
}

// -----

megakernel.kernel @two_places() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  // expected-error @below {{has parts, expected a 'shared_at' that is a non-negative multiple of 16, a 'part' and no 'offset' (B3)}}
  %b = megakernel.buffer {offset = 0 : i64, part = 4 : i64, shared_at = 0 : i64} : memref<4xf32>
  megakernel.return
}

// -----

megakernel.kernel @many_parts() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  // expected-error @below {{has parts of 4 of 8 elements from CTA 0 on, expected parts of one size, a multiple of 16 bytes, and at most 1 of them (B4)}}
  %b = megakernel.buffer {part = 4 : i64, shared_at = 0 : i64} : memref<8xf32>
  megakernel.return
}

// -----

megakernel.kernel @small_parts() attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  // expected-error @below {{has parts of 2 of 8 elements from CTA 0 on, expected parts of one size, a multiple of 16 bytes}}
  %b = megakernel.buffer {part = 2 : i64, shared_at = 0 : i64} : memref<8xf32>
  megakernel.return
}
