include "mlir/Pass/PassBase.td"

def TkVerifyAutodiff : Pass<"tk-verify-autodiff", "::mlir::megakernel::StepOp"> {
  let summary = "check the structure of a training step";
  let description = [{
    Checks on the graph form what can be known without calculating:

    * there is at most one loss, and it is a scalar of floating-point type;
    * every returned gradient has its parameter's shape and element type, and the loss depends on that parameter;
    * every state argument has exactly one update;
    * a state argument that the loss depends on and whose update is no unchanged argument is a trained parameter: its
      update depends on something else that the loss is computed from, which only a gradient can bring.

    Changes nothing. Fails with the path of the argument or result at fault; the step itself must change.

    Example of what fails: a step that returns the loss of `state["w"]` but updates it by `0.99 * state["w"]`.
  }];
}
