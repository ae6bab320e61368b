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

    Tile sizes, grid and cluster are those with the least predicted time, which each tile op carries as `predicted`
    for one of its tiles. The kernel's `plan` names all plans that were considered. The option `plan` overrides the
    planner: `plan=grid=16,cluster=16,tile[3.0]=64x64x256` asks for that many CTAs, clusters of that many, and tiles of
    64 by 64 over 256 of the sum for the first op of phase 3. Sizes are in the order of `megakernel.tile`.

    Fails on an unknown target, on a `grid` that cannot run at once on it, on a module without a step, on compute
    outside of fused ops (run `tk-inline-pointwise` first), or on a `plan` that cannot be read, that names no op, or
    that cannot be met, since tiles do not fit shared memory for instance.
  }];
  let options = [
    Option<"oneKernel", "one-kernel", "bool", "false",
           "Launches of one step and of several have one schedule, also where two are faster">,
    Option<"target", "target", "std::string", "\"sm_90a\"", "What to schedule for: cpu, sm_80, sm_90a">,
    Option<"grid", "grid", "int64_t", "0", "CTAs of the kernel; 0 lets the pass choose">,
    Option<"plan", "plan", "std::string", "\"\"",
           "Overrides of the planner: grid=N, cluster=N, tile[PHASE.OP]=SIZES, comma-separated">
  ];
  let dependentDialects = ["::mlir::megakernel::MegakernelDialect", "::mlir::memref::MemRefDialect"];
}
