include "mlir/Pass/PassBase.td"

def TkVerifyAutodiff : Pass<"tk-verify-autodiff", "::mlir::megakernel::StepOp"> {
  let summary = "check the structure of a training step";
  let description = [{
    Checks on the graph form what can be known without calculating:

    * there is at most one loss, and it is a scalar of floating-point type;
    * every returned gradient has its parameter's shape and element type, and the loss depends on that parameter;
    * every state argument has exactly one update;
    * state of floating-point type that the step takes a gradient by (`megakernel.differentiated`) is trained: its
      update uses that gradient, whatever the gradient depends on, or the value of another trained argument, as an
      average does; or it is an unchanged argument. A scalar may also be a schedule, which ignores its gradient.

    Where no gradient is marked, as in a step that was written by hand, a returned gradient tells: the update of its
    parameter depends on something that the gradient depends on, besides the parameter. Where none is returned either,
    the step trains something: the update of some state that the loss depends on depends on something else that the
    loss is computed from, unless all such state is unchanged.

    Changes nothing. Fails with the path of the argument or result at fault; the step itself must change.

    Example of what fails: a step that differentiates by `state["w"]` but updates it by `0.99 * state["w"]`. If that
    is meant, use `state["w"].detach()` in the loss.
  }];
}
