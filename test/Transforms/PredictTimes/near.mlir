// RUN: tk-opt %s --pass-pipeline='builtin.module(megakernel.kernel(tk-predict-times))' | FileCheck %s

// The planner counts two round trips to memory for a pointwise op. What a CTA has in shared memory comes in 0.03 us
// each, and its bytes at 128 in a cycle.
// CHECK: megakernel.tile {{.*}} sizes [1, 16] attributes {predicted = #megakernel.cost<latency = 800, operands = 66,
// CHECK: megakernel.barrier <cta>
// CHECK: megakernel.tile {{.*}} sizes [1, 16] attributes {predicted = #megakernel.cost<latency = 60, operands = 43,
megakernel.kernel @step(%x: memref<4x16xbf16> {megakernel.role = #megakernel.role<batch>},
                        %y: memref<4x16xbf16> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a"} {
  %h = megakernel.buffer {part = 16 : i64, shared_at = 0 : i64} : memref<4x16xbf16>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4x16xbf16>) outs(%h : memref<4x16xbf16>) sizes [1, 16]
        attributes {predicted = #megakernel.cost<latency = 800, operands = 66, multiply = 0, epilogue = 0>} {
      %n = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                           iterator_types = ["parallel", "parallel"]} ins(%a : tensor<4x16xbf16>) outs(%a : tensor<4x16xbf16>) {
      ^bb0(%in: bf16, %out: bf16):
        %m = arith.negf %in : bf16
        linalg.yield %m : bf16
      } -> tensor<4x16xbf16>
      megakernel.yield %n : tensor<4x16xbf16>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    megakernel.tile ins(%a = %h : memref<4x16xbf16>) outs(%y : memref<4x16xbf16>) sizes [1, 16]
        attributes {predicted = #megakernel.cost<latency = 800, operands = 66, multiply = 0, epilogue = 0>} {
      megakernel.yield %a : tensor<4x16xbf16>
    }
  }
  megakernel.return
}
