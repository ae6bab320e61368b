//===- ImportLinalg.cpp - from an annotated function to a step ------------===//

#include "lib/Transforms/ImportLinalg/ImportLinalg.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/IR/Builders.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKIMPORTLINALG
#include "lib/Transforms/ImportLinalg/ImportLinalg.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;

// Rewrites the string role of one argument or result to the dialect's attribute.
static FailureOr<DictionaryAttr> importAttributes(func::FuncOp function, DictionaryAttr attributes, StringRef kind,
                                                  unsigned index) {
  StringRef roleName = MegakernelDialect::getRoleAttrName();
  NamedAttrList list(attributes);
  Attribute given = list.get(roleName);
  auto text = dyn_cast_or_null<StringAttr>(given);
  std::optional<Role> role = text ? symbolizeRole(text.getValue()) : std::nullopt;
  if (auto already = dyn_cast_or_null<RoleAttr>(given))
    role = already.getValue();
  if (!role) {
    InFlightDiagnostic diag = function.emitError() << kind << " " << index << " has ";
    if (given)
      diag << "the role " << given;
    else
      diag << "no role";
    return diag << ", expected 'megakernel.role' to be one of state, batch, constant, loss, gradient, new_state, "
                   "output";
  }
  list.set(roleName, RoleAttr::get(function.getContext(), *role));
  return list.getDictionary(function.getContext());
}

// Joining and padding are insertions, which need no buffer of their own.
static LogicalResult decomposeJoins(Operation *step) {
  RewritePatternSet patterns(step->getContext());
  tensor::populateDecomposeTensorConcatPatterns(patterns);
  linalg::populateDecomposePadPatterns(patterns);
  return applyPatternsGreedily(step, std::move(patterns));
}

// A kernel cannot raise. What would be read at an index that is out of range is for the capture to say; no other memory
// is read.
static void dropAssertions(Operation *step) {
  step->walk([](cf::AssertOp op) {
    if (isa<linalg::GenericOp>(op->getParentOp()))
      op.erase();
  });
}

// What has no elements needs no computation; nothing else can depend on it.
static void forgetEmptyResults(ReturnOp op) {
  OpBuilder builder(op);
  for (OpOperand &operand : op->getOpOperands()) {
    auto type = dyn_cast<RankedTensorType>(operand.get().getType());
    if (type && type.hasStaticShape() && type.getNumElements() == 0)
      operand.set(tensor::EmptyOp::create(builder, op.getLoc(), type.getShape(), type.getElementType()));
  }
}

static LogicalResult importFunction(func::FuncOp function, Fp32 fp32) {
  if (function.isExternal())
    return function.emitError("has no body, expected the training step");
  if (!llvm::hasSingleElement(function.getBody()))
    return function.emitError("has control flow between blocks, expected a single block: a training step is static");
  SmallVector<Attribute> argAttrs, resAttrs;
  for (unsigned i = 0, e = function.getNumArguments(); i < e; ++i) {
    FailureOr<DictionaryAttr> attrs = importAttributes(function, function.getArgAttrDict(i), "argument", i);
    if (failed(attrs))
      return failure();
    argAttrs.push_back(*attrs);
  }
  for (unsigned i = 0, e = function.getNumResults(); i < e; ++i) {
    FailureOr<DictionaryAttr> attrs = importAttributes(function, function.getResultAttrDict(i), "result", i);
    if (failed(attrs))
      return failure();
    resAttrs.push_back(*attrs);
  }
  OpBuilder builder(function);
  // What is usual stays unsaid.
  Fp32Attr declared = fp32 == Fp32::IEEE ? nullptr : Fp32Attr::get(function.getContext(), fp32);
  auto step = StepOp::create(builder, function.getLoc(), function.getSymNameAttr(), function.getFunctionTypeAttr(),
                             builder.getArrayAttr(argAttrs), builder.getArrayAttr(resAttrs), declared);
  step.getBody().takeBody(function.getBody());
  Operation *oldReturn = step.getBody().front().getTerminator();
  builder.setInsertionPoint(oldReturn);
  forgetEmptyResults(ReturnOp::create(builder, oldReturn->getLoc(), oldReturn->getOperands()));
  oldReturn->erase();
  function.erase();
  dropAssertions(step);
  return decomposeJoins(step);
}

namespace {
struct ImportLinalgPass : public megakernel::impl::TkImportLinalgBase<ImportLinalgPass> {
  using TkImportLinalgBase::TkImportLinalgBase;

  void runOnOperation() override {
    std::optional<Fp32> policy = symbolizeFp32(fp32);
    if (!policy) {
      getOperation().emitError() << "unknown way '" << fp32 << "' to multiply float32, expected ieee or tf32x3";
      return signalPassFailure();
    }
    SmallVector<func::FuncOp> functions = llvm::to_vector(getOperation().getOps<func::FuncOp>());
    if (functions.size() != 1) {
      getOperation().emitError() << "holds " << functions.size() << " functions, expected one: the training step";
      return signalPassFailure();
    }
    if (failed(importFunction(functions.front(), *policy)))
      signalPassFailure();
  }
};
} // namespace
