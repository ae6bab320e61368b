// Code that recurs becomes one function in a kernel that is not small: here the products of three layers, which differ
// in their buffers and in the CTA of their tile.
// RUN: tk-opt %s --convert-megakernel-to-gpu=small-kernel=0 | FileCheck %s
// RUN: tk-opt %s --convert-megakernel-to-gpu | FileCheck %s --check-prefix=SMALL

#product = {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>,
                             affine_map<(d0, d1, d2) -> (d0, d1)>],
            iterator_types = ["parallel", "parallel", "reduction"]}
!m = tensor<16x16xf32>
!buffer = memref<16x16xf32>

// The function knows that buffers are in global memory. A place in the arena is a number, and so is the first CTA. The grid's
// barriers stay in the kernel.
// CHECK: func.func private @deep_body0(%[[X:[^:]*]]: memref<16x16xf32, #gpu.address_space<global>>, %[[W:[^:]*]]:
// CHECK-SAME: %[[PLACE:[^:]*]]: index, %[[ARENA:[^:]*]]: memref<3328xi8, {{.*}}>, %[[CTA:[^:]*]]: index)
// CHECK-SAME: passthrough = ["noinline", "convergent"]
// CHECK: %[[CAST:.*]] = memref.memory_space_cast %[[ARENA]]
// CHECK: memref.view %[[CAST]][%[[PLACE]]]
// CHECK: arith.addi %{{.*}}, %[[CTA]]
// CHECK: gpu.barrier
// CHECK: return
// CHECK-NOT: func.func
// CHECK: gpu.func @deep
// CHECK-COUNT-2: call @deep_body0
// CHECK: atom.add
// CHECK: call @deep_body0
// CHECK-NOT: vector.load
// CHECK: gpu.return

// SMALL-NOT: func.func
megakernel.kernel @deep(%x: !buffer {megakernel.role = #megakernel.role<batch>},
                        %u: !buffer {megakernel.role = #megakernel.role<state>},
                        %v: !buffer {megakernel.role = #megakernel.role<state>},
                        %w: !buffer {megakernel.role = #megakernel.role<state>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a",
                shared_bytes = 8192 : i64, arena_bytes = 3072 : i64} {
  %h = megakernel.buffer {offset = 0 : i64} : !buffer
  %i = megakernel.buffer {offset = 1024 : i64} : !buffer
  %j = megakernel.buffer {offset = 2048 : i64} : !buffer
  megakernel.phase {
    megakernel.tile ins(%a = %x : !buffer, %b = %u : !buffer) outs(%h : !buffer) sizes [16, 16, 16] first_cta 1 {
      %zero = arith.constant dense<0.0> : !m
      %r = linalg.generic #product ins(%a, %b : !m, !m) outs(%zero : !m) {
      ^bb0(%in: f32, %in2: f32, %out: f32):
        %p = arith.mulf %in, %in2 : f32
        %s = arith.addf %p, %out : f32
        linalg.yield %s : f32
      } -> !m
      megakernel.yield %r : !m
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    megakernel.tile ins(%a = %h : !buffer, %b = %v : !buffer) outs(%i : !buffer) sizes [16, 16, 16] first_cta 2 {
      %zero = arith.constant dense<0.0> : !m
      %r = linalg.generic #product ins(%a, %b : !m, !m) outs(%zero : !m) {
      ^bb0(%in: f32, %in2: f32, %out: f32):
        %p = arith.mulf %in, %in2 : f32
        %s = arith.addf %p, %out : f32
        linalg.yield %s : f32
      } -> !m
      megakernel.yield %r : !m
    }
  }
  megakernel.barrier <grid>
  megakernel.phase {
    megakernel.tile ins(%a = %i : !buffer, %b = %w : !buffer) outs(%j : !buffer) sizes [16, 16, 16] first_cta 3 {
      %zero = arith.constant dense<0.0> : !m
      %r = linalg.generic #product ins(%a, %b : !m, !m) outs(%zero : !m) {
      ^bb0(%in: f32, %in2: f32, %out: f32):
        %p = arith.mulf %in, %in2 : f32
        %s = arith.addf %p, %out : f32
        linalg.yield %s : f32
      } -> !m
      megakernel.yield %r : !m
    }
  }
  megakernel.return
}
