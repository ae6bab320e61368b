// A kernel that repeats loops over the steps of a launch.
// RUN: tk-opt %s --convert-megakernel-to-gpu=separate-phases=0 | FileCheck %s --check-prefixes=CHECK,ONE
// RUN: tk-opt %s --convert-megakernel-to-gpu=separate-phases=1 | FileCheck %s --check-prefixes=BOTH,HOISTED
// RUN: tk-opt %s --convert-megakernel-to-gpu='separate-phases=1 hoist-ops=0' | FileCheck %s --check-prefixes=BOTH,AGAIN
// RUN: tk-opt %s --pass-pipeline='builtin.module(tk-lower-to-cuda{separate-phases=0})' -o - | tk-opt --tool=tk-translate --tk-to-ptx | FileCheck %s --check-prefix=PTX

// ONE: megakernel.manifest = "{{.*}}\22repeat\22:{\22barrier\22:\22grid\22,\22symbol\22:\22step\22}
// BOTH: megakernel.manifest = "{{.*}}\22repeat\22:{\22barrier\22:\22grid\22,\22symbol\22:\22step_many\22}{{.*}}\22symbol\22:\22step\22
// The one that runs one step knows nothing of others.
// BOTH: gpu.func @step(
// BOTH-SAME: memref<256xi8>) kernel
// BOTH-NOT: scf.while
// BOTH: gpu.func @step_many(
// BOTH: scf.while
// Indices are computed ahead of the loop only where there are few.
// HOISTED-NOT: mov.b32
// AGAIN: llvm.inline_asm {{.*}}"mov.b32 $0, $1;"

// CHECK: gpu.func @step(
// CHECK-SAME: %[[WORKSPACE:[a-z0-9]*]]: memref<256xi8>, %[[STEPS:[a-z0-9]*]]: i32, %[[RING:[a-z0-9]*]]: i32) kernel
// The loop carries the step, the entry of the ring, and what the arrival at the barrier left.
// CHECK: %[[LOOP:.*]]:3 = scf.while (%[[STEP:.*]] = %{{.*}}, %[[ENTRY:.*]] = %{{.*}}, %[[ARRIVAL:.*]] = %{{.*}}) : (i32, i32, i32)
// CHECK: llvm.inline_asm {{.*}}"mov.b32 $0, $1;"
// The state is that of the step before, the batch the entry's, the output the step's; an entry of 12 bytes starts
// anywhere.
// CHECK: llvm.select
// CHECK: arith.extui %[[ENTRY]] : i32 to i64
// CHECK: {megakernel.alignment = 4 : i64}
// CHECK: arith.extui %[[STEP]] : i32 to i64
// All but the first step wait for the one before.
// CHECK: scf.if
// CHECK: llvm.inline_asm {{.*}}ld.acquire.gpu
// CHECK: memref.load
// All but the last one say that they have come so far.
// CHECK: scf.if
// CHECK: atom.add.release.gpu
// CHECK: scf.condition

// PTX: .param .u32 step_param_5,
// PTX-NEXT: .param .u32 step_param_6
// PTX: ld.global
module attributes {megakernel.manifest = "{}"} {
  megakernel.kernel @step(%w: memref<3xf32> {megakernel.role = #megakernel.role<state>},
                          %x: memref<3xf32> {megakernel.role = #megakernel.role<batch>},
                          %y: memref<3xf32> {megakernel.role = #megakernel.role<output>},
                          %n: memref<3xf32> {megakernel.role = #megakernel.role<new_state>,
                                             megakernel.updates = 0 : i64})
      attributes {grid = 2 : i64, cluster = 1 : i64, threads = 32 : i64, target = "sm_90a", arena_bytes = 0 : i64,
                  shared_bytes = 0 : i64} {
    megakernel.phase {
      megakernel.tile ins(%a = %x : memref<3xf32>, %b = %w : memref<3xf32>) outs(%n, %y : memref<3xf32>, memref<3xf32>)
          sizes [2] {
        megakernel.yield %b, %a : tensor<3xf32>, tensor<3xf32>
      }
    }
    megakernel.repeat <grid>
    megakernel.return
  }
}
