include "mlir/Pass/PassBase.td"

def TkImportLinalg : Pass<"tk-import-linalg", "::mlir::ModuleOp"> {
  let summary = "turn an annotated linalg function into a megakernel.step";
  let description = [{
    Needs a module with one `func.func` on ranked tensors whose arguments and results carry `megakernel.role`
    (a string), and new states `megakernel.updates`. Leaves a `megakernel.step` of the same name and body in its
    place, and on it `fp32`, where that is not `ieee`: how float32 products are computed. `tensor.concat` and `tensor.pad` become `tensor.insert_slice`;
    assertions in bodies, on indices, are dropped.

    Fails where a role is missing or not a role, where the function has more than one block, where `fp32` is none of
    these, or where the result violates a constraint of `megakernel.step`; declare the roles when capturing the step.

    Example:

    ```mlir
    func.func @keep(%w: tensor<4xf32> {megakernel.role = "state"})
        -> (tensor<4xf32> {megakernel.role = "new_state", megakernel.updates = 0 : i64}) {
      return %w : tensor<4xf32>
    }
    ```
  }];
  let options = [Option<"fp32", "fp32", "std::string", "\"ieee\"",
                        "How float32 products are computed: ieee (true float32) or tf32x3">];
  let dependentDialects = ["::mlir::megakernel::MegakernelDialect"];
}
