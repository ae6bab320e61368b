// RUN: tk-opt %s --convert-megakernel-to-gpu --split-input-file --verify-diagnostics

// expected-error @below {{is scheduled for 'cpu', expected a GPU architecture}}
megakernel.kernel @cpu() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, target = "cpu"} {
  megakernel.return
}

// -----

megakernel.kernel @unplaced() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  // expected-error @below {{buffer has no offset, expected 'tk-plan-buffers' to have run}}
  %b = megakernel.buffer : memref<4xf32>
  megakernel.return
}

// -----

megakernel.kernel @commit(%w: memref<4xf32> {megakernel.role = #megakernel.role<state>},
    %n: memref<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  // expected-error @below {{commit is not resolved, expected 'tk-commit-state' to have run}}
  megakernel.commit %w to %n : memref<4xf32>
  megakernel.return
}

// -----

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
megakernel.kernel @shared(%x: memref<16x16xf32> {megakernel.role = #megakernel.role<batch>},
                          %y: memref<16x16xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, shared_bytes = 16 : i64} {
  megakernel.phase {
    // expected-error @below {{needs 2560 bytes of shared memory, expected 'shared_bytes' of the kernel (16) to cover it}}
    megakernel.tile ins(%a = %x : memref<16x16xf32>) outs(%y : memref<16x16xf32>) sizes [16, 16, 16] {
      %zero = arith.constant dense<0.0> : tensor<16x16xf32>
      %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
          ins(%a, %a : tensor<16x16xf32>, tensor<16x16xf32>) outs(%zero : tensor<16x16xf32>) {
      ^bb0(%in: f32, %in2: f32, %out: f32):
        %p = arith.mulf %in, %in2 : f32
        %s = arith.addf %p, %out : f32
        linalg.yield %s : f32
      } -> tensor<16x16xf32>
      megakernel.yield %r : tensor<16x16xf32>
    }
  }
  megakernel.return
}
