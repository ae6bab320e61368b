// A kernel that repeats loops over the steps of a launch.
// RUN: tk-opt %s --convert-megakernel-to-cpu | FileCheck %s
// RUN: tk-opt %s --tk-lower-to-cpu | FileCheck %s --check-prefix=CALL

// CHECK: megakernel.manifest = "{{.*}}\22repeat\22:{\22barrier\22:\22cta\22,\22symbol\22:\22step\22}
// CHECK: func.func @step_worker(
// CHECK-SAME: memref<64xi8>, %[[STEPS:[a-z0-9]*]]: i64, %[[RING:[a-z0-9]*]]: i64, %{{[a-z0-9]*}}: index, %{{[a-z0-9]*}}: index
// CHECK: scf.while (%[[STEP:.*]] = %{{.*}}, %[[ENTRY:.*]] = %{{.*}}) : (i64, i64)
// CHECK: llvm.select
// CHECK: arith.muli %[[ENTRY]], %{{.*}} : i64
// CHECK: arith.muli %[[STEP]], %{{.*}} : i64
// CHECK: scf.if
// CHECK: llvm.call %{{.*}} : !llvm.ptr, (!llvm.ptr) -> ()
// CHECK: arith.select
// CHECK: scf.condition

// The entry finds both numbers behind the workspace.
// CALL: llvm.func @step(
// CALL: llvm.getelementptr %{{.*}}[5]
// CALL-NEXT: llvm.load %{{.*}} : !llvm.ptr -> i64
// CALL: llvm.getelementptr %{{.*}}[6]
// CALL-NEXT: llvm.load %{{.*}} : !llvm.ptr -> i64
module attributes {megakernel.manifest = "{}"} {
  megakernel.kernel @step(%w: memref<3xf32> {megakernel.role = #megakernel.role<state>},
                          %x: memref<3xf32> {megakernel.role = #megakernel.role<batch>},
                          %y: memref<3xf32> {megakernel.role = #megakernel.role<output>},
                          %n: memref<3xf32> {megakernel.role = #megakernel.role<new_state>,
                                             megakernel.updates = 0 : i64})
      attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64, target = "cpu", arena_bytes = 0 : i64} {
    megakernel.phase {
      megakernel.tile ins(%a = %x : memref<3xf32>, %b = %w : memref<3xf32>) outs(%n, %y : memref<3xf32>, memref<3xf32>)
          sizes [3] {
        megakernel.yield %b, %a : tensor<3xf32>, tensor<3xf32>
      }
    }
    megakernel.repeat <cta>
    megakernel.return
  }
}
