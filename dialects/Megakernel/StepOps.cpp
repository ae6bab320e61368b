//===- StepOps.cpp - ops of the graph form --------------------------------===//

#include "dialects/Megakernel/FusedRegion.h"
#include "dialects/Megakernel/MegakernelDialect.h"
#include "dialects/Megakernel/RegionSyntax.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/FunctionImplementation.h"

using namespace mlir;
using namespace mlir::megakernel;

//===----------------------------------------------------------------------===//
// StepOp
//===----------------------------------------------------------------------===//

static std::optional<Role> roleOf(Attribute attribute) {
  auto role = dyn_cast_or_null<RoleAttr>(attribute);
  return role ? std::optional<Role>(role.getValue()) : std::nullopt;
}

std::optional<Role> StepOp::getArgRole(unsigned index) {
  return roleOf(getArgAttr(index, MegakernelDialect::getRoleAttrName()));
}

std::optional<Role> StepOp::getResultRole(unsigned index) {
  return roleOf(getResultAttr(index, MegakernelDialect::getRoleAttrName()));
}

std::optional<unsigned> StepOp::getUpdatedArg(unsigned index) {
  return argumentIndex(getResultAttr(index, MegakernelDialect::getUpdatesAttrName()));
}

std::optional<unsigned> StepOp::getGradientArg(unsigned index) {
  return argumentIndex(getResultAttr(index, MegakernelDialect::getGradientOfAttrName()));
}

bool StepOp::isDifferentiated(unsigned index) {
  return bool(getArgAttr(index, MegakernelDialect::getDifferentiatedAttrName()));
}

// The verifier has checked the indices (S6).
static llvm::BitVector argumentSet(StepOp step, Attribute attribute) {
  llvm::BitVector set(step.getNumArguments());
  if (auto indices = dyn_cast_or_null<DenseI64ArrayAttr>(attribute))
    for (int64_t index : indices.asArrayRef())
      set.set(index);
  return set;
}

llvm::BitVector StepOp::getUsedGradients(unsigned index) {
  return argumentSet(*this, getResultAttr(index, MegakernelDialect::getUsesGradientsAttrName()));
}

llvm::BitVector StepOp::getUsedValues(unsigned index) {
  return argumentSet(*this, getResultAttr(index, MegakernelDialect::getUsesValuesAttrName()));
}

ParseResult StepOp::parse(OpAsmParser &parser, OperationState &result) {
  auto buildType = [](Builder &builder, ArrayRef<Type> args, ArrayRef<Type> results,
                      function_interface_impl::VariadicFlag,
                      std::string &) { return builder.getFunctionType(args, results); };
  return function_interface_impl::parseFunctionOp(parser, result, /*allowVariadic=*/false,
                                                  getFunctionTypeAttrName(result.name), buildType,
                                                  getArgAttrsAttrName(result.name), getResAttrsAttrName(result.name));
}

void StepOp::print(OpAsmPrinter &printer) {
  function_interface_impl::printFunctionOp(printer, *this, /*isVariadic=*/false, getFunctionTypeAttrName(),
                                           getArgAttrsAttrName(), getResAttrsAttrName());
}

static LogicalResult verifyStaticTensor(Operation *op, Type type, StringRef kind, unsigned index) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || !tensor.hasStaticShape())
    return op->emitOpError() << kind << " " << index << " has type " << type
                             << ", expected a ranked tensor of static shape (S1)";
  if (!isElementType(tensor.getElementType()))
    return op->emitOpError() << kind << " " << index << " has type " << type
                             << ", expected elements of f64, f32, bf16, f16, i64, i32, i16, i8 or i1 (S1)";
  return success();
}

static LogicalResult verifyArguments(StepOp step) {
  for (unsigned i = 0, e = step.getNumArguments(); i < e; ++i) {
    if (failed(verifyStaticTensor(step, step.getArgumentTypes()[i], "argument", i)))
      return failure();
    std::optional<Role> role = step.getArgRole(i);
    if (!role || (*role != Role::State && *role != Role::Batch && *role != Role::Constant))
      return step.emitOpError() << "argument " << i << " has "
                                << (role ? "the role " + stringifyRole(*role).str() : std::string("no role"))
                                << ", expected state, batch or constant (S2)";
  }
  return success();
}

static LogicalResult verifyUpdate(StepOp step, unsigned result, DenseMap<unsigned, unsigned> &updatedBy) {
  std::optional<unsigned> arg = step.getUpdatedArg(result);
  if (!arg || *arg >= step.getNumArguments() || step.getArgRole(*arg) != Role::State)
    return step.emitOpError() << "result " << result
                              << " is a new state that names no state argument, expected 'megakernel.updates' "
                                 "to be the index of one (S4)";
  if (step.getResultTypes()[result] != step.getArgumentTypes()[*arg])
    return step.emitOpError() << "result " << result << " of type " << step.getResultTypes()[result]
                              << " updates argument " << *arg << " of type " << step.getArgumentTypes()[*arg]
                              << ", expected equal types (S4)";
  auto [other, isNew] = updatedBy.try_emplace(*arg, result);
  if (!isNew)
    return step.emitOpError() << "results " << other->second << " and " << result << " both update argument " << *arg
                              << ", expected one update of each state argument (S4)";
  return success();
}

static LogicalResult verifyUses(StepOp step, unsigned result) {
  for (StringRef name : {MegakernelDialect::getUsesGradientsAttrName(), MegakernelDialect::getUsesValuesAttrName()}) {
    Attribute given = step.getResultAttr(result, name);
    auto indices = dyn_cast_or_null<DenseI64ArrayAttr>(given);
    int64_t count = step.getNumArguments();
    auto isArgument = [&](int64_t index) { return index >= 0 && index < count; };
    if (given && (!indices || !llvm::all_of(indices.asArrayRef(), isArgument)))
      return step.emitOpError() << "result " << result << " has '" << name << "' " << given
                                << ", expected an array of argument indices (S6)";
  }
  return success();
}

static LogicalResult verifyResults(StepOp step) {
  DenseMap<unsigned, unsigned> updatedBy;
  for (unsigned i = 0, e = step.getNumResults(); i < e; ++i) {
    if (failed(verifyStaticTensor(step, step.getResultTypes()[i], "result", i)))
      return failure();
    std::optional<Role> role = step.getResultRole(i);
    if (!role || *role == Role::State || *role == Role::Batch || *role == Role::Constant)
      return step.emitOpError() << "result " << i << " has "
                                << (role ? "the role " + stringifyRole(*role).str() : std::string("no role"))
                                << ", expected loss, gradient, new_state or output (S3)";
    if (*role == Role::NewState && failed(verifyUpdate(step, i, updatedBy)))
      return failure();
    if (*role != Role::NewState && step.getResultAttr(i, MegakernelDialect::getUpdatesAttrName()))
      return step.emitOpError() << "result " << i << " has 'megakernel.updates' and the role " << stringifyRole(*role)
                                << ", expected only new_state results to have it (S4)";
    if (failed(verifyUses(step, i)))
      return failure();
    Attribute gradientOf = step.getResultAttr(i, MegakernelDialect::getGradientOfAttrName());
    if (!gradientOf)
      continue;
    std::optional<unsigned> arg = step.getGradientArg(i);
    if (!arg || *arg >= step.getNumArguments() || step.getArgRole(*arg) != Role::State)
      return step.emitOpError() << "result " << i << " has 'megakernel.gradient_of' " << gradientOf
                                << ", expected the index of a state argument (S5)";
  }
  return success();
}

LogicalResult StepOp::verify() {
  if (failed(verifyArguments(*this)) || failed(verifyResults(*this)))
    return failure();
  if (!isa<ReturnOp>(getBody().front().back()))
    return emitOpError("must end with 'megakernel.return'");
  return success();
}

LogicalResult ReturnOp::verify() {
  auto function = cast<FunctionOpInterface>((*this)->getParentOp());
  if (getOperandTypes() != function.getResultTypes())
    return emitOpError() << "returns (" << getOperandTypes() << "), expected (" << function.getResultTypes()
                         << ") as its parent declares";
  return success();
}

//===----------------------------------------------------------------------===//
// Bindings
//===----------------------------------------------------------------------===//

ParseResult mlir::megakernel::parseBindings(OpAsmParser &parser, SmallVectorImpl<OpAsmParser::Argument> &arguments,
                                            SmallVectorImpl<OpAsmParser::UnresolvedOperand> &operands,
                                            SmallVectorImpl<Type> &types) {
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, [&]() -> ParseResult {
    if (parser.parseArgument(arguments.emplace_back()) || parser.parseEqual() ||
        parser.parseOperand(operands.emplace_back()) || parser.parseColonType(types.emplace_back()))
      return failure();
    return success();
  });
}

void mlir::megakernel::printBindings(OpAsmPrinter &printer, Block::BlockArgListType arguments, OperandRange operands) {
  printer << '(';
  llvm::interleaveComma(llvm::zip(arguments, operands), printer, [&](auto pair) {
    printer << std::get<0>(pair) << " = " << std::get<1>(pair) << " : " << std::get<1>(pair).getType();
  });
  printer << ')';
}

//===----------------------------------------------------------------------===//
// FusedOp
//===----------------------------------------------------------------------===//

ParseResult FusedOp::parse(OpAsmParser &parser, OperationState &result) {
  SmallVector<OpAsmParser::Argument> arguments;
  SmallVector<OpAsmParser::UnresolvedOperand> operands;
  SmallVector<Type> types;
  if (parseBindings(parser, arguments, operands, types) || parser.parseArrowTypeList(result.types) ||
      parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
      parser.resolveOperands(operands, types, parser.getCurrentLocation(), result.operands))
    return failure();
  for (auto [argument, type] : llvm::zip(arguments, types))
    argument.type = type;
  return parser.parseRegion(*result.addRegion(), arguments);
}

void FusedOp::print(OpAsmPrinter &printer) {
  printBindings(printer, getBody().getArguments(), getInputs());
  printer.printArrowTypeList(getResultTypes());
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs());
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

LogicalResult FusedOp::verify() {
  if (getBody().getArgumentTypes() != getInputs().getTypes())
    return emitOpError("has region arguments of other types than its operands (F1)");
  return success();
}

LogicalResult FusedOp::verifyRegions() {
  if (failed(verifyFusedRegion(*this, getBody())))
    return failure();
  if (getBody().front().getTerminator()->getOperandTypes() != getResultTypes())
    return emitOpError("yields values of other types than its results (F1)");
  return success();
}

namespace {
/// Drops operands that the region does not read and merges operands that are the same value.
struct SimplifyFusedOperands : OpRewritePattern<FusedOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(FusedOp op, PatternRewriter &rewriter) const override {
    Block &body = op.getBody().front();
    DenseMap<Value, BlockArgument> firstUse;
    llvm::BitVector drop(body.getNumArguments());
    for (auto [argument, operand] : llvm::zip(body.getArguments(), op.getInputs())) {
      auto [first, isNew] = firstUse.try_emplace(operand, argument);
      if (!isNew && !argument.use_empty())
        rewriter.replaceAllUsesWith(argument, first->second);
      if (argument.use_empty())
        drop.set(argument.getArgNumber());
    }
    if (drop.none())
      return failure();
    rewriter.modifyOpInPlace(op, [&] {
      body.eraseArguments(drop);
      op->eraseOperands(drop);
    });
    return success();
  }
};

/// Drops results that nobody reads.
struct DropUnusedFusedResults : OpRewritePattern<FusedOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(FusedOp op, PatternRewriter &rewriter) const override {
    SmallVector<Value> kept;
    for (Value result : op.getResults())
      if (!result.use_empty())
        kept.push_back(result);
    if (kept.size() == op.getNumResults() || kept.empty())
      return failure();
    auto yield = cast<YieldOp>(op.getBody().front().getTerminator());
    SmallVector<Value> yielded;
    SmallVector<Type> types;
    for (auto [result, value] : llvm::zip(op.getResults(), yield.getOperands()))
      if (!result.use_empty()) {
        yielded.push_back(value);
        types.push_back(value.getType());
      }
    rewriter.modifyOpInPlace(yield, [&] { yield->setOperands(yielded); });
    auto narrowed = FusedOp::create(rewriter, op.getLoc(), types, op.getInputs());
    narrowed->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    rewriter.inlineRegionBefore(op.getBody(), narrowed.getBody(), narrowed.getBody().end());
    for (auto [old, replacement] : llvm::zip(kept, narrowed.getResults()))
      rewriter.replaceAllUsesWith(old, replacement);
    rewriter.eraseOp(op);
    return success();
  }
};
} // namespace

void FusedOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<SimplifyFusedOperands, DropUnusedFusedResults>(context);
}
