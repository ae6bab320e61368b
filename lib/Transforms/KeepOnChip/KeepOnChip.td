include "mlir/Pass/PassBase.td"

def TkKeepOnChip : Pass<"tk-keep-on-chip", "::mlir::megakernel::KernelOp"> {
  let summary = "keep values in shared memory for the CTA that made them";
  let description = [{
    Needs a kernel with barriers. Where each tile that reads a value reads only what the same CTA made, the value gets a
    buffer in shared memory, so that it is at hand right after the barrier; if others read it too, it is written to
    both. What is needed for the shortest time goes first, as far as shared memory holds it beside what the phases
    meanwhile need. Sets the kernel's `shared_bytes`.

    A kernel for the CPU is left alone: there a worker finds what it has made in its caches. Never fails.
  }];
  let options = [
    Option<"maxDistance", "max-distance", "unsigned", "0",
           "Barriers over which a value is kept at most; 0 for as many as there are">
  ];
  let statistics = [Statistic<"numOnChip", "on-chip", "Buffers in shared memory">];
}
