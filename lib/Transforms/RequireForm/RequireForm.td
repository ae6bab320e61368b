include "mlir/Pass/PassBase.td"

def TkRequireForm : Pass<"tk-require-form", "::mlir::ModuleOp"> {
  let summary = "check that a module has the form that the next passes need";
  let description = [{
    Changes nothing. Most passes work on one `megakernel.step` or one `megakernel.kernel` and pass by a module that has
    none, so a stage that is run on the output of another stage than the one before would seem to succeed. The module is
    also verified, as after each pass where `--verify-each` is on; the compiler leaves that off.

    Fails where the module does not hold exactly one op of the form, where the target is none, or where a kernel is scheduled for another target
    than the one that is required: run the stages in their order. Also where an op is not valid, a fault of the pass that left it.
  }];
  let options = [
    Option<"form", "form", "std::string", "\"step\"", "What the module must hold: step or kernel">,
    Option<"target", "target", "std::string", "\"*\"", "What a kernel must be scheduled for; * for anything">
  ];
}
