// RUN: tk-opt %s --convert-megakernel-to-gpu --canonicalize | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>

// The parameters are the buffers and the workspace: 256 bytes of barrier state, then the arena. A CTA walks its tiles;
// its threads take a vector of elements each; the barrier of a grid of one is the CTA's.
// CHECK: module attributes {gpu.container_module}
// CHECK: gpu.module @step_module
// CHECK-NEXT: gpu.func @step(%[[X:.*]]: memref<6x32xf32>, %[[Y:.*]]: memref<6x32xf32>, %[[WORKSPACE:.*]]: memref<1024xi8>) kernel
// CHECK-SAME: nvvm.reqntid = array<i32: 32, 1, 1>
// CHECK-DAG: gpu.thread_id x upper_bound 32
// CHECK-DAG: gpu.block_id x upper_bound 1
// CHECK: %[[VIEW:.*]] = memref.view %[[WORKSPACE]][%c256]
// CHECK: %[[H:.*]] = memref.expand_shape %[[VIEW]]
// CHECK: vector.load %[[X]]{{.*}} {alignment = 16 : i64} : memref<6x32xf32>, vector<4xf32>
// CHECK: arith.negf %{{.*}} : vector<4xf32>
// CHECK: vector.store %{{.*}}, %[[H]]
// CHECK: gpu.barrier
// CHECK: vector.load %[[H]]
// CHECK: vector.store %{{.*}}, %[[Y]]
// CHECK: gpu.return
megakernel.kernel @step(%x: memref<6x32xf32> {megakernel.role = #megakernel.role<batch>},
                        %y: memref<6x32xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a", arena_bytes = 768 : i64,
                shared_bytes = 0 : i64} {
  %buffer = megakernel.buffer {offset = 0 : i64} : memref<192xf32>
  %h = memref.expand_shape %buffer [[0, 1]] output_shape [6, 32] : memref<192xf32> into memref<6x32xf32>
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<6x32xf32>) outs(%h : memref<6x32xf32>) sizes [4, 32] {
      %e = tensor.empty() : tensor<6x32xf32>
      %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
          ins(%a : tensor<6x32xf32>) outs(%e : tensor<6x32xf32>) {
      ^bb0(%in: f32, %out: f32):
        %n = arith.negf %in : f32
        linalg.yield %n : f32
      } -> tensor<6x32xf32>
      megakernel.yield %r : tensor<6x32xf32>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    megakernel.tile ins(%a = %h : memref<6x32xf32>) outs(%y : memref<6x32xf32>) sizes [4, 32] {
      megakernel.yield %a : tensor<6x32xf32>
    }
  }
  megakernel.return
}
