// RUN: tk-opt %s --tk-plan-buffers --verify-diagnostics

// The arena's verifier speaks where the plan cannot be right: an arena whose rounded size is no number of 64 bits.
// expected-error @below {{internal error in the arena plan: buffer 0 lies outside of the arena or is not aligned}}
megakernel.kernel @beyond_all_memory(%x: memref<9223372036854775807xi8> {megakernel.role = #megakernel.role<batch>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %b = megakernel.buffer : memref<9223372036854775807xi8>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<9223372036854775807xi8>) outs(%b : memref<9223372036854775807xi8>) sizes [128] {
      megakernel.yield %a : tensor<9223372036854775807xi8>
    }
  }
  megakernel.return
}
