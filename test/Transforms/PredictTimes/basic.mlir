// RUN: tk-opt %s --pass-pipeline='builtin.module(megakernel.kernel(tk-predict-times))' | FileCheck %s

// A tile op keeps its time for one tile, or gets one; a phase has that of its busiest CTA: here CTA 1 has tile 1 of the
// first op and the tile of the second, which starts on it.
// CHECK-LABEL: megakernel.kernel @busiest
// CHECK-SAME: launch_ns = 900 : i64, predicted_ns = 3226 : i64
// CHECK: megakernel.phase attributes {predicted = #megakernel.cost<latency = 210, operands = 21, multiply = 42, epilogue = 3>}
// CHECK: megakernel.tile {{.*}} sizes [2] attributes {predicted = #megakernel.cost<latency = 10, operands = 1, multiply = 2, epilogue = 3>}
// CHECK: megakernel.barrier <grid> {predicted_ns = 1250 : i64}
// CHECK: megakernel.phase attributes {predicted = #megakernel.cost<latency = 800, operands = [[BYTES:.*]], multiply = 0, epilogue = 0>}
// CHECK: megakernel.tile {{.*}} sizes [4] attributes {predicted = #megakernel.cost<latency = 800, operands = [[BYTES]], multiply = 0, epilogue = 0>}
megakernel.kernel @busiest(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
                           %y: memref<4xf32> {megakernel.role = #megakernel.role<output>},
                           %z: memref<4xf32> {megakernel.role = #megakernel.role<output>},
                           %u: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 2 : i64, cluster = 1 : i64, threads = 256 : i64, target = "sm_90a"} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%y : memref<4xf32>) sizes [2]
        attributes {predicted = #megakernel.cost<latency = 10, operands = 1, multiply = 2, epilogue = 3>} {
      megakernel.yield %a : tensor<4xf32>
    }
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%z : memref<4xf32>) sizes [4] first_cta 1
        attributes {predicted = #megakernel.cost<latency = 200, operands = 20, multiply = 40, epilogue = 0>} {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    megakernel.tile ins(%a = %y : memref<4xf32>) outs(%u : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}

// A schedule for nothing that is known has no times.
// CHECK-LABEL: megakernel.kernel @unknown
// CHECK-NOT: predicted
megakernel.kernel @unknown() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.return
}
