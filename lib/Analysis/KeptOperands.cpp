//===- KeptOperands.cpp - operands that stay in shared memory -------------===//

#include "lib/Analysis/KeptOperands.h"

#include "lib/Analysis/Views.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::megakernel;
using linalg::GenericOp;

namespace {
/// Writes an element of a tensor of a fused region as text.
class ElementText {
public:
  /// `inputs` are what the region's arguments stand for.
  ElementText(ValueRange inputs, llvm::SetVector<Value> &sources) : inputs(inputs), sources(sources), os(text) {}

  /// False where the form is not followed.
  bool add(Value tensor, ArrayRef<AffineExpr> indices);
  std::string text;

private:
  bool addGeneric(GenericOp op, OpResult result, ArrayRef<AffineExpr> indices);
  bool addBody(GenericOp op, Value scalar, ArrayRef<AffineExpr> loops);

  ValueRange inputs;
  llvm::SetVector<Value> &sources;
  llvm::raw_string_ostream os;
};
} // namespace

bool ElementText::add(Value tensor, ArrayRef<AffineExpr> indices) {
  if (auto argument = dyn_cast<BlockArgument>(tensor)) {
    Value input = inputs[argument.getArgNumber()];
    auto root = dyn_cast<BlockArgument>(isa<MemRefType>(input.getType()) ? rootOfBuffer(input) : skipReshapes(input));
    if (!root)
      return false;
    sources.insert(root);
    os << "argument " << root.getArgNumber() << " as " << input.getType() << "[";
    llvm::interleaveComma(indices, os);
    os << "]";
    return true;
  }
  if (auto generic = tensor.getDefiningOp<GenericOp>())
    return !isReduction(generic) && addGeneric(generic, cast<OpResult>(tensor), indices);
  auto slice = tensor.getDefiningOp<tensor::ExtractSliceOp>();
  if (!slice || slice.getDroppedDims().any())
    return false;
  SmallVector<AffineExpr> source;
  for (auto [dim, index] : llvm::enumerate(indices))
    source.push_back(index * slice.getStaticStride(dim) + slice.getStaticOffset(dim));
  return add(slice.getSource(), source);
}

bool ElementText::addGeneric(GenericOp op, OpResult result, ArrayRef<AffineExpr> indices) {
  AffineMap map = op.getMatchingIndexingMap(op.getDpsInitOperand(result.getResultNumber()));
  if (!map.isPermutation())
    return false;
  SmallVector<AffineExpr> loops(indices.size());
  for (auto [expr, index] : llvm::zip(map.getResults(), indices))
    loops[cast<AffineDimExpr>(expr).getPosition()] = index;
  return addBody(op, op.getRegion().front().getTerminator()->getOperand(result.getResultNumber()), loops);
}

// The scalar `scalar` of the body of `op` at `loops`.
bool ElementText::addBody(GenericOp op, Value scalar, ArrayRef<AffineExpr> loops) {
  if (auto argument = dyn_cast<BlockArgument>(scalar)) {
    OpOperand *operand = op.getMatchingOpOperand(argument);
    if (!isa<RankedTensorType>(operand->get().getType()))
      return false;
    SmallVector<AffineExpr> indices;
    for (AffineExpr expr : op.getMatchingIndexingMap(operand).getResults())
      indices.push_back(expr.replaceDims(loops));
    return add(operand->get(), indices);
  }
  Operation *inner = scalar.getDefiningOp();
  if (inner->getNumResults() != 1 || inner->getNumRegions() != 0 || isa<linalg::IndexOp, tensor::ExtractOp>(inner))
    return false;
  os << inner->getName() << inner->getAttrDictionary() << inner->getResult(0).getType() << "(";
  for (Value operand : inner->getOperands()) {
    if (!addBody(op, operand, loops))
      return false;
    os << ", ";
  }
  os << ")";
  return true;
}

std::optional<std::string> mlir::megakernel::textOfOperand(GenericOp op, OpOperand *operand, unsigned outerLoop,
                                                           unsigned innerLoop, ValueRange inputs,
                                                           llvm::SetVector<Value> &sources) {
  SmallVector<AffineExpr> indices;
  for (AffineExpr expr : op.getMatchingIndexingMap(operand).getResults()) {
    unsigned loop = cast<AffineDimExpr>(expr).getPosition();
    if (loop != outerLoop && loop != innerLoop)
      return std::nullopt;
    indices.push_back(getAffineDimExpr(loop == innerLoop, op.getContext()));
  }
  ElementText element(inputs, sources);
  return element.add(operand->get(), indices) ? std::optional(element.text) : std::nullopt;
}

std::optional<OperandContent> mlir::megakernel::contentToKeep(KernelOp kernel, TileOp tile) {
  TileGeometry geometry(tile);
  int64_t grid = kernel.getGrid();
  if (!geometry.region.reduction || !geometry.region.isContraction() || geometry.numTiles > grid)
    return std::nullopt;
  ContractionPlan plan(geometry, kernel.getThreads());
  SharedTile shared = plan.b;
  // As a plan lays out what is kept.
  shared.swizzle = 0;
  shared.pitch = shared.inner +
                 trainkernel::rowPadding(plan.multiplier, /*alongK=*/true) * 8 / shared.element.getIntOrFloatBitWidth();
  bool isWhole = plan.numChunks == 1 && plan.sizeOf(plan.nLoop) >= plan.extentOf(plan.nLoop);
  if (!isWhole)
    return std::nullopt;
  OperandContent content{"", {}, static_cast<int64_t>(tile.getFirstCta()) % grid, geometry.numTiles, shared.bytes()};
  std::optional<std::string> element =
      textOfOperand(plan.op, plan.bOperand, shared.outerLoop, shared.innerLoop, tile.getInputs(), content.sources);
  if (!element)
    return std::nullopt;
  for (Value source : content.sources)
    if (kernel.isOutput(cast<BlockArgument>(source).getArgNumber()))
      return std::nullopt;
  llvm::raw_string_ostream os(content.text);
  os << shared.element << " " << plan.extentOf(shared.outerLoop) << "/" << shared.outer << " x "
     << plan.extentOf(shared.innerLoop) << "/" << shared.inner << " pitch " << shared.pitch << ": " << *element;
  return content;
}

SmallVector<int64_t> mlir::megakernel::keptBytesOf(KernelOp kernel) {
  struct Range {
    size_t first, last;
    int64_t end;
  };
  // By place: what is there from the first tile op that keeps something up to the last one that finds it.
  llvm::MapVector<uint64_t, Range> ranges;
  size_t number = 0;
  for (auto phase : kernel.getBody().front().getOps<PhaseOp>()) {
    for (auto tile : phase.getBody().front().getOps<TileOp>()) {
      std::optional<uint64_t> keptAt = tile.getKeptAt();
      if (!keptAt)
        continue;
      int64_t end = *keptAt + ContractionPlan(TileGeometry(tile), kernel.getThreads()).b.bytes();
      Range &range = ranges.try_emplace(*keptAt, Range{number, number, end}).first->second;
      range.last = number;
      range.end = std::max(range.end, end);
    }
    ++number;
  }
  SmallVector<int64_t> bytes(number, 0);
  for (const auto &[place, range] : ranges)
    for (size_t phase = range.first; phase <= range.last; ++phase)
      bytes[phase] = std::max(bytes[phase], range.end);
  return bytes;
}

bool mlir::megakernel::mayWrite(KernelOp kernel, TileOp tile, Value argument) {
  unsigned index = cast<BlockArgument>(argument).getArgNumber();
  return llvm::any_of(tile.getOutputs(), [&](Value output) {
    auto root = dyn_cast<BlockArgument>(rootOfBuffer(output));
    return root && (root == argument || kernel.getUpdatedArg(root.getArgNumber()) == index);
  });
}
