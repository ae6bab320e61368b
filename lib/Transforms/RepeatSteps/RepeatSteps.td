include "mlir/Pass/PassBase.td"

def TkRepeatSteps : Pass<"tk-repeat-steps", "::mlir::megakernel::KernelOp"> {
  let summary = "let a launch run several steps";
  let description = [{
    Needs a kernel with barriers whose commits are resolved. Ends it with `megakernel.repeat`, so that a launch runs as
    many steps as the caller asks for. Its scope is the least that orders what a step does with what comes before it; on
    a CPU it joins all workers. Buffers that a step writes while others may still read what the one before left get a
    place for even and one for odd steps (`alternates`), where that lets fewer CTAs meet.

    Never fails; a kernel that repeats already, or is for launches of one step, is left alone.
  }];
}
