#ifndef TRAINKERNEL_DIALECTS_MEGAKERNEL_MEGAKERNELDIALECT_TD
#define TRAINKERNEL_DIALECTS_MEGAKERNEL_MEGAKERNELDIALECT_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/DialectBase.td"
include "mlir/IR/EnumAttr.td"

def Megakernel_Dialect : Dialect {
  let name = "megakernel";
  let cppNamespace = "::mlir::megakernel";
  let summary = "One training step as one kernel";
  let description = [{
    The dialect has two verified forms.

    *Graph form* says **what** a training step computes. `megakernel.step` holds the step; its arguments and
    results carry roles and the update map. The compute inside is upstream `linalg`, `tensor`, `arith` and
    `math`; `megakernel.fused` groups ops that are computed together, tile by tile, so that what flows between
    them never reaches memory.

    *Scheduled form* says **where** and **when**, and computes nothing new. `megakernel.kernel` holds phases in
    program order; each `megakernel.phase` holds independent `megakernel.tile` ops with their tiling and
    placement; `megakernel.barrier` orders phases at an explicit scope; `megakernel.buffer` is a view into one
    arena. This form is complete: every target is generated from it alone.

    Discardable attributes on the arguments and results of `step` and on the arguments of `kernel`:

    | attribute | on | meaning |
    | --- | --- | --- |
    | `megakernel.role` | all | the `#megakernel.role` of the value |
    | `megakernel.path` | all | where it stands in the user's pytree, for messages and the manifest |
    | `megakernel.updates` | new state | index of the state argument that it replaces |
    | `megakernel.gradient_of` | gradient | index of the state argument whose gradient it is |
    | `megakernel.differentiated` | state | unit: the step takes a gradient by it |
    | `megakernel.uses_gradients` | results | indices of the arguments by which a gradient is taken that it depends on |
    | `megakernel.uses_values` | results | indices of the arguments that it depends on otherwise |

    The last three are what only automatic differentiation knows, and for `tk-verify-autodiff` alone.
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 0;
  let extraClassDeclaration = [{
    static constexpr llvm::StringLiteral getRoleAttrName() { return "megakernel.role"; }
    static constexpr llvm::StringLiteral getPathAttrName() { return "megakernel.path"; }
    static constexpr llvm::StringLiteral getUpdatesAttrName() { return "megakernel.updates"; }
    static constexpr llvm::StringLiteral getGradientOfAttrName() { return "megakernel.gradient_of"; }
    static constexpr llvm::StringLiteral getDifferentiatedAttrName() { return "megakernel.differentiated"; }
    static constexpr llvm::StringLiteral getUsesGradientsAttrName() { return "megakernel.uses_gradients"; }
    static constexpr llvm::StringLiteral getUsesValuesAttrName() { return "megakernel.uses_values"; }
    static constexpr llvm::StringLiteral getManifestAttrName() { return "megakernel.manifest"; }
  }];
  let dependentDialects = ["::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect",
                           "::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
                           "::mlir::memref::MemRefDialect"];
}

def Megakernel_Role : I32EnumAttr<"Role", "what a value is to the training step", [
    I32EnumAttrCase<"State", 0, "state">,
    I32EnumAttrCase<"Batch", 1, "batch">,
    I32EnumAttrCase<"Constant", 2, "constant">,
    I32EnumAttrCase<"Loss", 3, "loss">,
    I32EnumAttrCase<"Gradient", 4, "gradient">,
    I32EnumAttrCase<"NewState", 5, "new_state">,
    I32EnumAttrCase<"Output", 6, "output">]> {
  let cppNamespace = "::mlir::megakernel";
  let genSpecializedAttr = 0;
}

def Megakernel_Scope : I32EnumAttr<"Scope", "the threads that a barrier joins", [
    I32EnumAttrCase<"Cta", 0, "cta">,
    I32EnumAttrCase<"Cluster", 1, "cluster">,
    I32EnumAttrCase<"Grid", 2, "grid">]> {
  let cppNamespace = "::mlir::megakernel";
  let genSpecializedAttr = 0;
}

def Megakernel_Fp32 : I32EnumAttr<"Fp32", "how float32 operands of contractions are multiplied", [
    I32EnumAttrCase<"IEEE", 0, "ieee">,
    I32EnumAttrCase<"TF32x3", 1, "tf32x3">]> {
  let cppNamespace = "::mlir::megakernel";
  let genSpecializedAttr = 0;
}

def Megakernel_StepCount : I32EnumAttr<"StepCount", "how many steps the launches of a kernel run", [
    I32EnumAttrCase<"One", 0, "one">,
    I32EnumAttrCase<"Several", 1, "several">]> {
  let cppNamespace = "::mlir::megakernel";
  let genSpecializedAttr = 0;
}

def Megakernel_RoleAttr : EnumAttr<Megakernel_Dialect, Megakernel_Role, "role"> {
  let assemblyFormat = "`<` $value `>`";
}

def Megakernel_Fp32Attr : EnumAttr<Megakernel_Dialect, Megakernel_Fp32, "fp32"> {
  let assemblyFormat = "`<` $value `>`";
}

def Megakernel_StepCountAttr : EnumAttr<Megakernel_Dialect, Megakernel_StepCount, "step_count"> {
  let assemblyFormat = "`<` $value `>`";
}

def Megakernel_ScopeAttr : EnumAttr<Megakernel_Dialect, Megakernel_Scope, "scope"> {
  let assemblyFormat = "`<` $value `>`";
}

def Megakernel_CostAttr : AttrDef<Megakernel_Dialect, "Cost"> {
  let mnemonic = "cost";
  let summary = "a predicted time by what it consists of, in nanoseconds";
  let description = [{
    What one CTA spends on a tile, or on all of its tiles of a phase:

    * `latency`: round trips to memory that nothing hides;
    * `operands`: the bytes of what is read ahead of the arithmetic;
    * `multiply`: multiply-adds, and the meetings of the threads between chunks of them;
    * `epilogue`: the arithmetic of the results, and the bytes that it reads and writes.

    Example: `#megakernel.cost<latency = 600, operands = 105, multiply = 180, epilogue = 40>`.
  }];
  let parameters = (ins "int64_t":$latency, "int64_t":$operands, "int64_t":$multiply, "int64_t":$epilogue);
  let assemblyFormat = "`<` struct(params) `>`";
  let extraClassDeclaration = [{
    int64_t total() const { return getLatency() + getOperands() + getMultiply() + getEpilogue(); }
  }];
}

#endif
