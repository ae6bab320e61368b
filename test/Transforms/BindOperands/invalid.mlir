// What is not where it is looked for.
// RUN: tk-opt %s --tk-check-schedule --split-input-file --verify-diagnostics

#product = {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>,
                             affine_map<(d0, d1, d2) -> (d0, d1)>],
            iterator_types = ["parallel", "parallel", "reduction"]}

// The row of byte 0 is not the one that is multiplied.
megakernel.kernel @elsewhere(%x: memref<4x16xbf16> {megakernel.role = #megakernel.role<batch>},
                             %w: memref<16x16xbf16> {megakernel.role = #megakernel.role<state>},
                             %y: memref<4x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a", shared_bytes = 8192 : i64} {
  %h = megakernel.buffer {part = 16 : i64, shared_at = 32 : i64} : memref<4x16xbf16>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4x16xbf16>) outs(%h : memref<4x16xbf16>) sizes [1, 16] {
      megakernel.yield %a : tensor<4x16xbf16>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    // expected-error@below {{rows are taken from byte 0 of shared memory, where the CTA does not have them as they are multiplied, expected no 'rows_at'}}
    megakernel.tile ins(%a = %h : memref<4x16xbf16>, %b = %w : memref<16x16xbf16>) outs(%y : memref<4x16xf32>)
        sizes [1, 16, 16] attributes {rows_at = 0 : i64} {
      %zero = arith.constant dense<0.0> : tensor<4x16xf32>
      %r = linalg.generic #product ins(%a, %b : tensor<4x16xbf16>, tensor<16x16xbf16>) outs(%zero : tensor<4x16xf32>) {
      ^bb0(%i: bf16, %j: bf16, %o: f32):
        %l = arith.extf %i : bf16 to f32
        %q = arith.extf %j : bf16 to f32
        %p = arith.mulf %l, %q : f32
        %s = arith.addf %p, %o : f32
        linalg.yield %s : f32
      } -> tensor<4x16xf32>
      megakernel.yield %r : tensor<4x16xf32>
    }
  }
  megakernel.return
}

// -----

megakernel.kernel @copy(%x: memref<4x16xf32> {megakernel.role = #megakernel.role<batch>},
                        %y: memref<4x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    // expected-error@below {{has rows_at 16, expected a contraction and a non-negative multiple of 16 (T6)}}
    megakernel.tile ins(%a = %x : memref<4x16xf32>) outs(%y : memref<4x16xf32>) sizes [1, 16]
        attributes {rows_at = 16 : i64} {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.return
}

// -----

megakernel.kernel @held(%x: memref<4x16xf32> {megakernel.role = #megakernel.role<batch>},
                        %y: memref<4x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    // expected-error@below {{has in_registers without kept_at, expected both (T6)}}
    megakernel.tile ins(%a = %x : memref<4x16xf32>) outs(%y : memref<4x16xf32>) sizes [1, 16]
        attributes {in_registers} {
      megakernel.yield %a : tensor<4x16xf32>
    }
  }
  megakernel.return
}
