// RUN: tk-opt %s --tk-check-schedule --split-input-file --verify-diagnostics

// A CTA cannot see what another one has.
megakernel.kernel @others(%x: memref<4x16xf32> {megakernel.role = #megakernel.role<batch>},
                          %y: memref<4x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, shared_bytes = 64 : i64, arena_bytes = 0 : i64} {
  // expected-note@below {{the buffer is made here}}
  %h = megakernel.buffer {part = 16 : i64, shared_at = 0 : i64} : memref<4x16xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4x16xf32>) outs(%h : memref<4x16xf32>) sizes [1, 16] {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    // expected-error@below {{a tile touches buffer memref<4x16xf32> at byte 0 of shared memory beyond the part of its own CTA, expected a buffer in the arena}}
    megakernel.tile ins(%a = %h : memref<4x16xf32>) outs(%y : memref<4x16xf32>) sizes [1, 16] first_cta 1 {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.return
}

// -----

// Two buffers in one place at one time.
megakernel.kernel @overlap(%x: memref<4x16xf32> {megakernel.role = #megakernel.role<batch>},
                           %y: memref<4x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, shared_bytes = 96 : i64, arena_bytes = 0 : i64} {
  // expected-note@below {{the other one is buffer memref<4x16xf32> at byte 0 of shared memory}}
  %h = megakernel.buffer {part = 16 : i64, shared_at = 0 : i64} : memref<4x16xf32>
  // expected-error@below {{buffer memref<4x16xf32> at byte 32 of shared memory overlaps another buffer that is in use between the same barriers}}
  %g = megakernel.buffer {part = 16 : i64, shared_at = 32 : i64} : memref<4x16xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4x16xf32>) outs(%h, %g : memref<4x16xf32>, memref<4x16xf32>) sizes [1, 16] {
      megakernel.yield %a, %a : tensor<4x16xf32>, tensor<4x16xf32>
    }
  }
  megakernel.return
}

// -----

megakernel.kernel @small(%x: memref<4x16xf32> {megakernel.role = #megakernel.role<batch>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, shared_bytes = 64 : i64, arena_bytes = 0 : i64} {
  %h = megakernel.buffer {part = 16 : i64, shared_at = 16 : i64} : memref<4x16xf32>
  // expected-error@below {{phase needs 80 bytes of shared memory, expected 'shared_bytes' of the kernel (64) to cover it}}
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4x16xf32>) outs(%h : memref<4x16xf32>) sizes [1, 16] {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.return
}
