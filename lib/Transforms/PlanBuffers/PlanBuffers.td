include "mlir/Pass/PassBase.td"

def TkPlanBuffers : Pass<"tk-plan-buffers", "::mlir::megakernel::KernelOp"> {
  let summary = "give every buffer its place in the arena";
  let description = [{
    Needs a kernel with its barriers. Sets the offset of every `megakernel.buffer` and the kernel's `arena_bytes`.
    Memory is reused once a barrier of all CTAs stands between a buffer's last reader and the next one's writer. Buffers that
    nothing uses are removed.

    A plan that its own verifier finds wrong is an internal error. Only an arena beyond 64 bits is known to give one.
  }];
  let statistics = [Statistic<"arenaBytes", "arena bytes", "Size of the arena">,
                    Statistic<"bufferBytes", "buffer bytes", "Size of all buffers without reuse">];
}
