// Code that recurs becomes one function in a kernel that is not small: here the products of three layers, which differ
// in their buffers and in the first worker of their tile.
// RUN: tk-opt %s --convert-megakernel-to-cpu=small-kernel=0 | FileCheck %s
// RUN: tk-opt %s --convert-megakernel-to-cpu | FileCheck %s --check-prefix=SMALL

#product = {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>,
                             affine_map<(d0, d1, d2) -> (d0, d1)>],
            iterator_types = ["parallel", "parallel", "reduction"]}
!m = tensor<16x16xf32>
!buffer = memref<16x16xf32>

// A place in the arena is a number, and so is the first worker; what a worker has of its own is passed as well.
// CHECK: func.func private @deep_body0(%{{[^:]*}}: memref<5120xi8> {llvm.noalias},
// CHECK-SAME: %[[PLACE:[^:]*]]: index, %[[ARENA:[^:]*]]: memref<3072xi8>, %[[FIRST:[^:]*]]: index)
// CHECK-SAME: passthrough = ["noinline"]
// CHECK: memref.view %[[ARENA]][%[[PLACE]]]
// CHECK: arith.muli %{{.*}}, %[[FIRST]]
// CHECK: vector.fma
// CHECK: return
// CHECK-NOT: func.func private
// CHECK: func.func @deep_worker
// CHECK: memref.alloca
// CHECK: call @deep_body0
// CHECK: llvm.call
// CHECK: call @deep_body0
// CHECK: llvm.call
// CHECK: call @deep_body0
// CHECK-NOT: vector.fma
// CHECK: return

// SMALL-NOT: func.func private
megakernel.kernel @deep(%x: !buffer {megakernel.role = #megakernel.role<batch>},
                        %u: !buffer {megakernel.role = #megakernel.role<state>},
                        %v: !buffer {megakernel.role = #megakernel.role<state>},
                        %w: !buffer {megakernel.role = #megakernel.role<state>})
    attributes {grid = 4 : i64, cluster = 1 : i64, threads = 32 : i64, target = "cpu",
                arena_bytes = 3072 : i64} {
  %h = megakernel.buffer {offset = 0 : i64} : !buffer
  %i = megakernel.buffer {offset = 1024 : i64} : !buffer
  %j = megakernel.buffer {offset = 2048 : i64} : !buffer
  megakernel.phase {
    megakernel.tile ins(%a = %x : !buffer, %b = %u : !buffer) outs(%h : !buffer) sizes [16, 16, 16] first_cta 2 {
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
