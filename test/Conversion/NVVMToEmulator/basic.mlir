// What belongs to the GPU becomes calls of the emulator; all else stays, with plain pointers, in an ordinary module.
// RUN: tk-opt %s --convert-nvvm-to-emulator | FileCheck %s

// CHECK-NOT: gpu.module

// The entry point takes what a driver takes.
// CHECK-LABEL: llvm.func @step(
// CHECK-SAME: %[[PARAMS:.*]]: !llvm.ptr) {
// CHECK: %[[PLACE:.*]] = llvm.load %{{.*}} : !llvm.ptr -> !llvm.ptr
// CHECK-NEXT: llvm.load %[[PLACE]] : !llvm.ptr -> !llvm.ptr
// CHECK: llvm.call @step_thread(

// CHECK-LABEL: llvm.func internal @step_thread(
// CHECK-SAME: %[[X:.*]]: !llvm.ptr, %[[N:.*]]: i32) {
// CHECK: %[[THREAD:.*]] = llvm.call @tk_emu_thread() : () -> i32
// CHECK: %[[SHARED:.*]] = llvm.call @tk_emu_shared_memory() : () -> !llvm.ptr
// CHECK: %[[SLOT:.*]] = llvm.getelementptr %[[SHARED]][%[[THREAD]]] : (!llvm.ptr, i32) -> !llvm.ptr, bf16
// A check ahead of each access: bytes, alignment, place.
// CHECK: llvm.call @tk_emu_read(%[[X]], {{.*}}) : (!llvm.ptr, i32, i32, i32) -> ()
// CHECK-NEXT: llvm.load %[[X]] {alignment = 16 : i64} : !llvm.ptr -> vector<8xf32>
// bfloat16 is rounded by whole numbers.
// CHECK-NOT: llvm.fptrunc
// CHECK: llvm.call @tk_emu_write(%[[SLOT]]
// CHECK-NEXT: llvm.store %{{.*}}, %[[SLOT]] {alignment = 2 : i64} : bf16, !llvm.ptr
// CHECK-NEXT: llvm.call @tk_emu_written(
// CHECK: llvm.call @tk_emu_barrier(
// CHECK: %[[OFFSET:.*]] = llvm.call @tk_emu_shared_offset(%[[SHARED]]) : (!llvm.ptr) -> i64
// CHECK: llvm.trunc %[[OFFSET]] : i64 to i32
// CHECK: llvm.intr.fma(
// CHECK: llvm.call @expf(
// CHECK: llvm.call @tk_emu_rcp_approx_ftz(
// CHECK: llvm.call @tk_emu_copies_wait(

// CHECK: llvm.mlir.global external constant @trainkernel_emulator_sites("load of step.py:7\0Astore of {{.*}}\0Abarrier of the CTA of
// CHECK: @trainkernel_emulator_granule(2 : i32)
gpu.module @step_module {
  llvm.mlir.global internal @shared() {addr_space = 3 : i32} : !llvm.array<0 x i8>
  llvm.func @__nv_expf(f32) -> f32
  llvm.func @step(%x: !llvm.ptr, %n: i32) attributes {gpu.kernel, nvvm.kernel, nvvm.reqntid = array<i32: 32, 1, 1>} {
    %thread = nvvm.read.ptx.sreg.tid.x range <i32, 0, 32> : i32
    %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
    %slot = llvm.getelementptr %shared[%thread] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, bf16
    %values = llvm.load %x : !llvm.ptr -> vector<8xf32> loc("step.py":7:1)
    %zero = llvm.mlir.constant(0 : i32) : i32
    %value = llvm.extractelement %values[%zero : i32] : vector<8xf32>
    %narrow = llvm.fptrunc %value : f32 to bf16
    llvm.store %narrow, %slot : bf16, !llvm.ptr<3>
    nvvm.barrier0
    %address = llvm.ptrtoint %shared : !llvm.ptr<3> to i32
    %a = llvm.intr.fmuladd(%value, %value, %value) : (f32, f32, f32) -> f32
    %b = llvm.call @__nv_expf(%a) : (f32) -> f32
    %c = llvm.call_intrinsic "llvm.nvvm.rcp.approx.ftz.f"(%b) : (f32) -> f32
    llvm.inline_asm has_side_effects asm_dialect = att "cp.async.wait_all;", "~{memory}" : () -> ()
    llvm.return
  }
}
