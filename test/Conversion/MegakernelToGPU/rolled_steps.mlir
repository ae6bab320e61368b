// Steps of a chain that recur become a loop in a kernel that is not small. Places in the arena that are equally far
// apart are computed from the number of the round, others come from a table, which is read a round ahead.
// RUN: tk-opt %s --convert-megakernel-to-gpu=small-kernel=0 --canonicalize | FileCheck %s
// RUN: tk-opt %s --convert-megakernel-to-gpu | FileCheck %s --check-prefix=SMALL

!buffer = memref<4x16xf32>

// Reads from 256 (the barriers' own) + 0, 256 and 768, writes to 512, 1024 and 1536.
// CHECK: llvm.mlir.global internal constant @rounds(dense<[256, 512, 1024]> : tensor<3xi64>) {addr_space = 4 : i32
// CHECK: gpu.func @step
// CHECK: scf.for %[[ROUND:.*]] = %{{.*}} to %{{.*}} step %{{.*}} iter_args(%[[FROM:.*]] = %{{.*}}) -> (index) {
// CHECK: %[[NEXT:.*]] = llvm.load %{{.*}} invariant {{.*}} : !llvm.ptr<4> -> i64
// CHECK: %[[FOLLOWING:.*]] = arith.index_cast %[[NEXT]]
// CHECK: %[[FAR:.*]] = arith.muli %[[ROUND]], %{{.*}}
// CHECK: %[[TO:.*]] = arith.addi %[[FAR]], %{{.*}}
// CHECK-DAG: %[[SOURCE:.*]] = memref.view %{{.*}}[%[[FROM]]]
// CHECK-DAG: %[[TARGET:.*]] = memref.view %{{.*}}[%[[TO]]]
// CHECK: load %[[SOURCE]]
// CHECK: store %{{.*}}, %[[TARGET]]
// CHECK: gpu.barrier
// CHECK: scf.yield %[[FOLLOWING]]
// CHECK-NOT: scf.for
// CHECK: gpu.return

// SMALL-NOT: scf.for
megakernel.kernel @step(%x: !buffer {megakernel.role = #megakernel.role<batch>},
                        %y: !buffer {megakernel.role = #megakernel.role<output>})
    attributes {grid = 8 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a", shared_bytes = 0 : i64,
                arena_bytes = 1536 : i64} {
  %a = megakernel.buffer {offset = 0 : i64} : !buffer
  %b = megakernel.buffer {offset = 256 : i64} : !buffer
  %c = megakernel.buffer {offset = 768 : i64} : !buffer
  %d = megakernel.buffer {offset = 1280 : i64} : !buffer
  megakernel.phase {
    megakernel.tile ins(%in = %x : !buffer) outs(%a : !buffer) sizes [1, 16] {
      megakernel.yield %in : tensor<4x16xf32>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    megakernel.tile ins(%in = %a : !buffer) outs(%b : !buffer) sizes [1, 16] {
      megakernel.yield %in : tensor<4x16xf32>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    megakernel.tile ins(%in = %b : !buffer) outs(%c : !buffer) sizes [1, 16] {
      megakernel.yield %in : tensor<4x16xf32>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    megakernel.tile ins(%in = %c : !buffer) outs(%d : !buffer) sizes [1, 16] {
      megakernel.yield %in : tensor<4x16xf32>
    }
  }
  megakernel.barrier <cta>
  megakernel.phase {
    megakernel.tile ins(%in = %d : !buffer) outs(%y : !buffer) sizes [1, 16] {
      megakernel.yield %in : tensor<4x16xf32>
    }
  }
  megakernel.return
}
