include "mlir/Pass/PassBase.td"

def TkRepeatSteps : Pass<"tk-repeat-steps", "::mlir::megakernel::KernelOp"> {
  let summary = "let a launch run several steps";
  let description = [{
    Needs a kernel whose commits are resolved. Ends it with `megakernel.repeat`, so that a launch runs as many steps as
    the caller asks for. Its scope is the least that joins every CTA, as that of barriers.

    The last phases of a step write the state that the first ones of the next read, so that there is always something
    to wait for. Never fails; a kernel that repeats already is left alone.
  }];
}
