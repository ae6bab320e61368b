include "mlir/Pass/PassBase.td"

def TkSchedulePhases : Pass<"tk-schedule-phases", "::mlir::ModuleOp"> {
  let summary = "turn a fused step into a kernel of phases";
  let description = [{
    Needs a `megakernel.step` whose compute is `megakernel.fused` ops and views of their results. Leaves a
    `megakernel.kernel` of the same name: inputs and outputs become buffer arguments, every fused op a
    `megakernel.tile` with tile sizes for the target, in as few phases as the dependences allow. New states are
    computed into buffers and committed at the end. Barriers, arena offsets and direct commits are left to later
    passes.

    An op that overwrites a state goes, where that makes no phase more, after the last op that reads it.

    Fails on an unknown target, on a `grid` that cannot run at once on it, on a module without a step, or on
    compute outside of fused ops: run `tk-inline-pointwise` first.
  }];
  let options = [
    Option<"target", "target", "std::string", "\"sm_90a\"", "What to schedule for: cpu, sm_80, sm_90a">,
    Option<"grid", "grid", "int64_t", "0", "CTAs of the kernel; 0 lets the pass choose">
  ];
  let dependentDialects = ["::mlir::megakernel::MegakernelDialect", "::mlir::memref::MemRefDialect"];
}
