//===- ScheduledOps.cpp - ops of the scheduled form -----------------------===//

#include "dialects/Megakernel/FusedRegion.h"
#include "dialects/Megakernel/MegakernelDialect.h"
#include "dialects/Megakernel/RegionSyntax.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/FunctionImplementation.h"

using namespace mlir;
using namespace mlir::megakernel;

static bool isContiguousBuffer(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  return memref && memref.hasStaticShape() && memref.getLayout().isIdentity() && !memref.getMemorySpace() &&
         isElementType(memref.getElementType());
}

//===----------------------------------------------------------------------===//
// KernelOp
//===----------------------------------------------------------------------===//

std::optional<Role> KernelOp::getArgRole(unsigned index) {
  auto role = dyn_cast_or_null<RoleAttr>(getArgAttr(index, MegakernelDialect::getRoleAttrName()));
  return role ? std::optional<Role>(role.getValue()) : std::nullopt;
}

bool KernelOp::isOutput(unsigned index) {
  std::optional<Role> role = getArgRole(index);
  return role && *role != Role::State && *role != Role::Batch && *role != Role::Constant;
}

std::optional<unsigned> KernelOp::getUpdatedArg(unsigned index) {
  return argumentIndex(getArgAttr(index, MegakernelDialect::getUpdatesAttrName()));
}

std::optional<unsigned> KernelOp::getUpdatingArg(unsigned index) {
  for (unsigned output = 0, e = getNumArguments(); output < e; ++output)
    if (getUpdatedArg(output) == index)
      return output;
  return std::nullopt;
}

RepeatOp KernelOp::getRepeat() {
  auto repeats = getBody().front().getOps<RepeatOp>();
  return repeats.empty() ? RepeatOp() : *repeats.begin();
}

Scope KernelOp::getJoiningScope() {
  if (getGrid() == 1)
    return Scope::Cta;
  return getGrid() == getCluster() ? Scope::Cluster : Scope::Grid;
}

ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &result) {
  auto buildType = [](Builder &builder, ArrayRef<Type> args, ArrayRef<Type> results,
                      function_interface_impl::VariadicFlag,
                      std::string &) { return builder.getFunctionType(args, results); };
  return function_interface_impl::parseFunctionOp(parser, result, /*allowVariadic=*/false,
                                                  getFunctionTypeAttrName(result.name), buildType,
                                                  getArgAttrsAttrName(result.name), getResAttrsAttrName(result.name));
}

void KernelOp::print(OpAsmPrinter &printer) {
  function_interface_impl::printFunctionOp(printer, *this, /*isVariadic=*/false, getFunctionTypeAttrName(),
                                           getArgAttrsAttrName(), getResAttrsAttrName());
}

static LogicalResult verifyUpdates(KernelOp kernel) {
  llvm::SmallDenseMap<unsigned, unsigned> updatedBy;
  for (unsigned i = 0, e = kernel.getNumArguments(); i < e; ++i) {
    Attribute attribute = kernel.getArgAttr(i, MegakernelDialect::getUpdatesAttrName());
    if (!attribute)
      continue;
    std::optional<unsigned> updated = kernel.getUpdatedArg(i);
    if (!kernel.isOutput(i) || !updated || *updated >= kernel.getNumArguments() ||
        kernel.getArgRole(*updated) != Role::State ||
        kernel.getArgumentTypes()[*updated] != kernel.getArgumentTypes()[i])
      return kernel.emitOpError() << "argument " << i << " has 'megakernel.updates' " << attribute
                                  << ", expected it on an output, with the index of a state of the same type (K3)";
    auto [other, isNew] = updatedBy.try_emplace(*updated, i);
    if (!isNew)
      return kernel.emitOpError() << "arguments " << other->second << " and " << i << " both update argument "
                                  << *updated << ", expected one update of each state (K3)";
  }
  return success();
}

LogicalResult KernelOp::verify() {
  for (auto [index, type] : llvm::enumerate(getArgumentTypes()))
    if (!isContiguousBuffer(type))
      return emitOpError() << "argument " << index << " has type " << type
                           << ", expected a contiguous memref of static shape (K1)";
  int64_t grid = getGrid(), cluster = getCluster(), threads = getThreads();
  if (cluster < 1 || grid < 1 || grid % cluster != 0)
    return emitOpError() << "has a grid of " << grid << " and clusters of " << cluster
                         << ", expected a positive multiple (K2)";
  if (threads < 32 || threads > 1024 || threads % 32 != 0)
    return emitOpError() << "has " << threads << " threads, expected a multiple of 32 from 32 to 1024 (K2)";
  for (std::optional<uint64_t> bytes : {getSharedBytes(), getArenaBytes()})
    if (bytes && static_cast<int64_t>(*bytes) < 0)
      return emitOpError() << "has a size of " << static_cast<int64_t>(*bytes) << " bytes, expected none below 0 (K2)";
  if (failed(verifyUpdates(*this)))
    return failure();
  for (Operation &op : getBody().front())
    if (!isa<BufferOp, memref::ExpandShapeOp, memref::CollapseShapeOp, PhaseOp, BarrierOp, CommitOp, RepeatOp,
             ReturnOp>(op)) {
      InFlightDiagnostic diag = emitOpError("holds an op that is not allowed in a kernel, expected buffers, their "
                                            "reshapes, phases, barriers, commits and a repeat (K4)");
      diag.attachNote(op.getLoc()) << "the op is '" << op.getName() << "'";
      return diag;
    }
  if (!isa<ReturnOp>(getBody().front().back()))
    return emitOpError("must end with 'megakernel.return'");
  if (getStepCount() == StepCount::One && getRepeat())
    return emitOpError("is for launches of one step and repeats, expected no 'megakernel.repeat' (K5)");
  return success();
}

//===----------------------------------------------------------------------===//
// BufferOp, PhaseOp, RepeatOp, CommitOp
//===----------------------------------------------------------------------===//

static LogicalResult verifyParts(BufferOp buffer) {
  std::optional<uint64_t> at = buffer.getSharedAt(), part = buffer.getPart();
  if (!at && !part && buffer.getFirstCta() == 0)
    return success();
  if (!at || !part || buffer.getOffset() || static_cast<int64_t>(*at) < 0 || *at % 16 != 0)
    return buffer.emitOpError(
        "has parts, expected a 'shared_at' that is a non-negative multiple of 16, a 'part' and no "
        "'offset' (B3)");
  int64_t elements = *part, all = buffer.getType().getNumElements();
  int64_t bytes = std::max<int64_t>(1, buffer.getType().getElementTypeBitWidth() / 8);
  int64_t grid = buffer->getParentOfType<KernelOp>().getGrid();
  if (elements > 0 && all % elements == 0 && elements * bytes % 16 == 0 && all / elements <= grid &&
      static_cast<int64_t>(buffer.getFirstCta()) >= 0)
    return success();
  return buffer.emitOpError() << "has parts of " << elements << " of " << all << " elements from CTA "
                              << static_cast<int64_t>(buffer.getFirstCta()) << " on, expected parts of one size, a "
                              << "multiple of 16 bytes, and at most " << grid << " of them (B4)";
}

LogicalResult BufferOp::verify() {
  if (!isContiguousBuffer(getType()) || getType().getNumElements() == 0)
    return emitOpError() << "has type " << getType()
                         << ", expected a contiguous memref of static shape without "
                            "zero extents (B1)";
  if (getOffset() && (static_cast<int64_t>(*getOffset()) < 0 || *getOffset() % 16 != 0))
    return emitOpError() << "has offset " << static_cast<int64_t>(*getOffset())
                         << ", expected a non-negative multiple of 16 (B2)";
  if (getAlternates() && isOnChip())
    return emitOpError("alternates on chip, expected it in the arena (B5)");
  return verifyParts(*this);
}

static int64_t bytesOf(MemRefType type) {
  return type.getNumElements() * std::max<int64_t>(1, type.getElementTypeBitWidth() / 8);
}

int64_t BufferOp::getBytesOfPlace() { return llvm::alignTo(bytesOf(getType()), 16); }

int64_t BufferOp::getBytesInArena() { return bytesOf(getType()) + (getAlternates() ? getBytesOfPlace() : 0); }

LogicalResult PhaseOp::verify() {
  for (Operation &op : getBody().front())
    if (!isa<TileOp>(op)) {
      InFlightDiagnostic diag = emitOpError("holds an op other than 'megakernel.tile' (P1)");
      diag.attachNote(op.getLoc()) << "the op is '" << op.getName() << "'";
      return diag;
    }
  return success();
}

LogicalResult RepeatOp::verify() {
  if (!isa_and_nonnull<ReturnOp>((*this)->getNextNode()))
    return emitOpError("is followed by another op than 'megakernel.return' (R1)");
  return success();
}

LogicalResult CommitOp::verify() {
  auto kernel = (*this)->getParentOfType<KernelOp>();
  auto target = dyn_cast<BlockArgument>(getTarget());
  if (!target || target.getOwner()->getParentOp() != kernel || !kernel.isOutput(target.getArgNumber()))
    return emitOpError("has a target that is not an output argument of the kernel (C2)");
  return success();
}

//===----------------------------------------------------------------------===//
// TileOp
//===----------------------------------------------------------------------===//

static Type tensorOf(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  return memref ? RankedTensorType::get(memref.getShape(), memref.getElementType()) : Type();
}

ParseResult TileOp::parse(OpAsmParser &parser, OperationState &result) {
  SmallVector<OpAsmParser::Argument> arguments;
  SmallVector<OpAsmParser::UnresolvedOperand> inputs, outputs;
  SmallVector<Type> inputTypes, outputTypes;
  DenseI64ArrayAttr sizes;
  llvm::SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword("ins") || parseBindings(parser, arguments, inputs, inputTypes) ||
      parser.parseKeyword("outs") || parser.parseLParen() || parser.parseOperandList(outputs) ||
      parser.parseColonTypeList(outputTypes) || parser.parseRParen() || parser.parseKeyword("sizes"))
    return failure();
  sizes = dyn_cast_or_null<DenseI64ArrayAttr>(DenseI64ArrayAttr::parse(parser, Type()));
  if (!sizes)
    return failure();
  int64_t firstCta = 0;
  if (succeeded(parser.parseOptionalKeyword("first_cta")) && parser.parseInteger(firstCta))
    return failure();
  if (parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
      parser.resolveOperands(inputs, inputTypes, loc, result.operands) ||
      parser.resolveOperands(outputs, outputTypes, loc, result.operands))
    return failure();
  Builder &builder = parser.getBuilder();
  result.addAttribute(getSizesAttrName(result.name), sizes);
  result.addAttribute(getFirstCtaAttrName(result.name), builder.getI64IntegerAttr(firstCta));
  result.addAttribute(getOperandSegmentSizeAttr(),
                      builder.getDenseI32ArrayAttr({(int32_t)inputs.size(), (int32_t)outputs.size()}));
  for (auto [argument, type] : llvm::zip(arguments, inputTypes)) {
    argument.type = tensorOf(type);
    if (!argument.type)
      return parser.emitError(loc) << "reads " << type << ", expected a ranked memref";
  }
  return parser.parseRegion(*result.addRegion(), arguments);
}

void TileOp::print(OpAsmPrinter &printer) {
  printer << " ins";
  printBindings(printer, getBody().getArguments(), getInputs());
  printer << " outs(" << getOutputs() << " : " << getOutputs().getTypes() << ") sizes [";
  llvm::interleaveComma(getSizes(), printer);
  printer << ']';
  if (getFirstCta() != 0)
    printer << " first_cta " << getFirstCta();
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(),
                                           {getSizesAttrName(), getFirstCtaAttrName(), getOperandSegmentSizeAttr()});
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

LogicalResult TileOp::verify() {
  if (getBody().getNumArguments() != getInputs().size())
    return emitOpError("has another number of region arguments than of inputs (T1)");
  for (auto [argument, input] : llvm::zip(getBody().getArguments(), getInputs()))
    if (argument.getType() != tensorOf(input.getType()))
      return emitOpError() << "reads " << input.getType() << " as " << argument.getType()
                           << ", expected a tensor of its shape and element type (T1)";
  auto kernel = (*this)->getParentOfType<KernelOp>();
  for (auto [index, output] : llvm::enumerate(getOutputs())) {
    auto argument = dyn_cast<BlockArgument>(rootOfBuffer(output));
    if (argument && !kernel.isOutput(argument.getArgNumber()))
      return emitOpError() << "writes argument " << argument.getArgNumber() << " of the kernel as output " << index
                           << ", expected a buffer or an argument that is an output (T4)";
  }
  if (static_cast<int64_t>(getFirstCta()) < 0)
    return emitOpError() << "has first_cta " << static_cast<int64_t>(getFirstCta()) << ", expected none below 0 (T2)";
  int64_t last = -1;
  for (int64_t index : getPrefetched().value_or(ArrayRef<int64_t>())) {
    if (index <= last || index >= static_cast<int64_t>(getInputs().size()))
      return emitOpError() << "prefetches input " << index << ", expected inputs from 0 to "
                           << static_cast<int64_t>(getInputs().size()) - 1 << " in ascending order (T5)";
    last = index;
  }
  return success();
}

LogicalResult TileOp::verifyRegions() {
  if (failed(verifyFusedRegion(*this, getBody())))
    return failure();
  Operation *yield = getBody().front().getTerminator();
  if (yield->getNumOperands() != getOutputs().size())
    return emitOpError("yields another number of values than it has outputs (T1)");
  for (auto [value, output] : llvm::zip(yield->getOperands(), getOutputs()))
    if (value.getType() != tensorOf(output.getType()))
      return emitOpError() << "writes " << value.getType() << " to " << output.getType()
                           << ", expected a memref of its shape and element type (T1)";
  FusedRegion parts = FusedRegion::get(getBody());
  using Place = std::pair<StringRef, std::optional<uint64_t>>;
  for (auto [name, place] : {Place("kept_at", getKeptAt()), Place("rows_at", getRowsAt())})
    if (place && (!parts.isContraction() || static_cast<int64_t>(*place) < 0 || *place % 16 != 0))
      return emitOpError() << "has " << name << " " << static_cast<int64_t>(*place)
                           << ", expected a contraction and a non-negative multiple of 16 (T6)";
  if (getGroups() && (!parts.isContraction() || !llvm::isPowerOf2_64(*getGroups())))
    return emitOpError() << "has groups " << static_cast<int64_t>(*getGroups())
                         << ", expected a contraction and a power of two (T7)";
  if (!getKeptAt() && (getReusesKept() || getInRegisters()))
    return emitOpError() << "has " << (getReusesKept() ? "reuses_kept" : "in_registers")
                         << " without kept_at, expected both (T6)";
  size_t rank = parts.parallelShape.size() + parts.reductionShape.size();
  if (getSizes().size() != rank || llvm::any_of(getSizes(), [](int64_t size) { return size < 1; }))
    return emitOpError() << "has " << getSizes().size() << " tile sizes, expected " << rank
                         << " positive ones, one per dimension of the domain (T2)";
  return success();
}

void TileOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  for (OpOperand &input : getInputsMutable())
    effects.emplace_back(MemoryEffects::Read::get(), &input);
  for (OpOperand &output : getOutputsMutable())
    effects.emplace_back(MemoryEffects::Write::get(), &output);
}
