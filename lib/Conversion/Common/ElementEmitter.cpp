//===- ElementEmitter.cpp - code for one element of a fused region --------===//

#include "lib/Conversion/Common/ElementEmitter.h"

#include "dialects/Megakernel/FusedRegion.h"
#include "lib/Conversion/Common/StepLoop.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::megakernel;
using linalg::GenericOp;

static bool allUniform(ArrayRef<LaneIndex> indices) {
  return llvm::all_of(indices, [](const LaneIndex &index) { return index.isUniform(); });
}

Value ElementEmitter::splat(Location loc, Value value) {
  if (lanes == 1 || isa<VectorType>(value.getType()))
    return value;
  return vector::BroadcastOp::create(builder, loc, VectorType::get(lanes, value.getType()), value);
}

static SmallVector<std::pair<Value, int64_t>> placeOf(ArrayRef<LaneIndex> indices) {
  return llvm::map_to_vector(indices, [](const LaneIndex &index) { return std::pair(index.base, index.stride); });
}

ElementEmitter::Key ElementEmitter::keyOf(Value tensor, ArrayRef<LaneIndex> indices) {
  return {tensor, placeOf(indices)};
}

Value ElementEmitter::findEmitted(const Key &key) const {
  for (auto &[known, value] : emitted)
    if (known == key)
      return value;
  return nullptr;
}

Value ElementEmitter::emit(Value tensor, ArrayRef<LaneIndex> indices) {
  if (Value value = bound.lookup(tensor))
    return splat(tensor.getLoc(), value);
  Key key = keyOf(tensor, indices);
  if (Value value = findEmitted(key))
    return value;
  Value value = emitUncached(tensor, indices);
  if (!value)
    return nullptr;
  value = splat(tensor.getLoc(), value);
  emitted.emplace_back(key, value);
  return value;
}

Value ElementEmitter::emitUncached(Value tensor, ArrayRef<LaneIndex> indices) {
  if (auto argument = dyn_cast<BlockArgument>(tensor)) {
    Value value = load(tile.getLoc(), tile.getInputs()[argument.getArgNumber()], indices);
    return getElementTypeOrSelf(tensor.getType()).isInteger(1) ? truthOf(value) : value;
  }
  Operation *op = tensor.getDefiningOp();
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return emitConstant(constant, indices);
  if (auto generic = dyn_cast<GenericOp>(op))
    return emitGeneric(generic, cast<OpResult>(tensor), indices);
  if (auto fill = dyn_cast<linalg::FillOp>(op))
    return outsideConstant(op, fill.getInputs().front());
  if (isa<tensor::EmptyOp>(op)) {
    Type type = cast<RankedTensorType>(tensor.getType()).getElementType();
    return arith::ConstantOp::create(builder, op->getLoc(), builder.getZeroAttr(type));
  }
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op))
    return emitInsertSlice(insert, indices);
  if (!isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp, tensor::ExtractSliceOp>(op)) {
    op->emitError() << "'" << op->getName() << "' is not supported in a fused region";
    return nullptr;
  }
  return emitView(op, indices);
}

// A few unequal elements are chosen by their place, so that they need no memory: a small table, e.g. of class weights.
Value ElementEmitter::emitConstant(arith::ConstantOp op, ArrayRef<LaneIndex> indices) {
  constexpr int64_t largestTable = 64;
  auto elements = cast<DenseElementsAttr>(op.getValue());
  auto scalar = [&](Attribute value) -> Value {
    return arith::ConstantOp::create(builder, op.getLoc(), cast<TypedAttr>(value));
  };
  if (elements.isSplat())
    return scalar(elements.getSplatValue<Attribute>());
  if (elements.getNumElements() > largestTable) {
    op.emitError() << "a constant tensor of " << elements.getNumElements() << " unequal elements is not supported, "
                   << "expected at most " << largestTable << "; pass it as an argument of the step";
    return nullptr;
  }
  if (!allUniform(indices))
    return emitPerLane(op.getResult(), indices);
  auto values = llvm::to_vector(elements.getValues<Attribute>());
  IndexMath math(builder, op.getLoc());
  Value place = math.constant(0);
  for (auto [extent, index] : llvm::zip(elements.getType().getShape(), indices))
    place = math.add(math.mul(place, extent), index.base);
  Value chosen = scalar(values.back());
  for (size_t i = values.size() - 1; i-- > 0;)
    if (values[i] != values[i + 1])
      chosen = arith::SelectOp::create(builder, op.getLoc(), math.less(place, i + 1), scalar(values[i]), chosen);
  return chosen;
}

// A constant of the region for use in the code that is emitted; the region itself goes away.
Value ElementEmitter::outsideConstant(Operation *user, Value value) {
  Operation *constant = value.getDefiningOp();
  if (constant && constant->hasTrait<OpTrait::ConstantLike>())
    return builder.clone(*constant)->getResult(0);
  user->emitError() << "'" << user->getName()
                    << "' reads a value from outside of its body that is no constant, which is not supported";
  return nullptr;
}

namespace {
/// Which tensor of an insertion has an element, as far as the indices are known.
enum class InsertSide { Source, Dest, Unknown };
} // namespace

static InsertSide sideOf(tensor::InsertSliceOp op, ArrayRef<LaneIndex> indices) {
  InsertSide side = InsertSide::Source;
  for (auto [dim, index] : llvm::enumerate(indices)) {
    int64_t first = op.getStaticOffset(dim), size = op.getStaticSize(dim), step = op.getStaticStride(dim);
    int64_t last = first + (size - 1) * step, extent = op.getDestType().getDimSize(dim);
    if (index.last < first || index.first > last)
      return InsertSide::Dest;
    bool isWhole = step == 1 && index.first >= first && std::min(index.last, extent - 1) <= last;
    if (!isWhole)
      side = InsertSide::Unknown;
  }
  return side;
}

// Calls `visit` for each element of a region argument that the element of `tensor` is computed from, in an order that
// depends on nothing but the region.
void ElementEmitter::visitLoads(Value tensor, ArrayRef<LaneIndex> indices,
                                function_ref<void(Value, ArrayRef<LaneIndex>)> visit) {
  if (isa<BlockArgument>(tensor)) {
    visit(tensor, indices);
    return;
  }
  Operation *op = tensor.getDefiningOp();
  SmallVector<LaneIndex> loops(indices);
  SmallVector<OpOperand *> operands;
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op)) {
    InsertSide side = sideOf(insert, indices);
    if (side == InsertSide::Dest)
      visitLoads(insert.getDest(), indices, visit);
    if (side == InsertSide::Source)
      operands = {&insert.getSourceMutable()};
  }
  if (auto generic = dyn_cast<GenericOp>(op)) {
    AffineMap map = generic.getMatchingIndexingMap(generic.getDpsInitOperand(cast<OpResult>(tensor).getResultNumber()));
    if (isReduction(generic) || !map.isPermutation())
      return;
    for (auto [expr, index] : llvm::zip(map.getResults(), indices))
      loops[cast<AffineDimExpr>(expr).getPosition()] = index;
    operands = generic.getDpsInputOperands();
  } else if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp, tensor::ExtractSliceOp>(op)) {
    operands = {&op->getOpOperand(0)};
  }
  for (OpOperand *operand : operands)
    if (isa<RankedTensorType>(operand->get().getType()) && !operand->get().getDefiningOp<arith::ConstantOp>())
      if (std::optional<SmallVector<LaneIndex>> source = operandIndices(*operand, loops))
        visitLoads(operand->get(), *source, visit);
}

SmallVector<Value> ElementEmitter::preload(Value tensor, ArrayRef<LaneIndex> indices, Wanted wants) {
  SmallVector<Value> loaded;
  visitLoads(tensor, indices, [&](Value argument, ArrayRef<LaneIndex> at) {
    Key key = keyOf(argument, at);
    if (findEmitted(key) || (wants && !wants(cast<BlockArgument>(argument))))
      return;
    loaded.push_back(emitUncached(argument, at));
    emitted.emplace_back(key, splat(argument.getLoc(), loaded.back()));
  });
  return loaded;
}

void ElementEmitter::useLoaded(Value tensor, ArrayRef<LaneIndex> indices, ArrayRef<Value> &loaded, Wanted wants) {
  visitLoads(tensor, indices, [&](Value argument, ArrayRef<LaneIndex> at) {
    Key key = keyOf(argument, at);
    if (findEmitted(key) || (wants && !wants(cast<BlockArgument>(argument))))
      return;
    emitted.emplace_back(key, splat(argument.getLoc(), loaded.front()));
    loaded = loaded.drop_front();
  });
}

//===----------------------------------------------------------------------===//
// Bodies
//===----------------------------------------------------------------------===//

Value ElementEmitter::emitGeneric(GenericOp op, OpResult result, ArrayRef<LaneIndex> indices) {
  AffineMap map = op.getMatchingIndexingMap(op.getDpsInitOperand(result.getResultNumber()));
  if (!map.isPermutation()) {
    op.emitError("an op that neither is a reduction nor writes each element once is not supported here");
    return nullptr;
  }
  SmallVector<LaneIndex> loops(indices.size());
  for (auto [expr, index] : llvm::zip(map.getResults(), indices))
    loops[cast<AffineDimExpr>(expr).getPosition()] = index;
  bool isAffineInLanes = llvm::all_of(op->getOpOperands(), [&](OpOperand &operand) {
    return !isa<RankedTensorType>(operand.get().getType()) || op.getMatchingBlockArgument(&operand).use_empty() ||
           operandIndices(operand, loops);
  });
  if (!isAffineInLanes)
    return emitPerLane(result, indices);
  return emitBody(op, loops, /*accumulator=*/nullptr, result.getResultNumber());
}

Value ElementEmitter::emitBody(GenericOp op, ArrayRef<LaneIndex> loops, Value accumulator, unsigned resultNumber) {
  IndexMath math(builder, op.getLoc());
  Block &body = op.getRegion().front();
  IRMapping mapping;
  for (OpOperand &operand : op->getOpOperands()) {
    BlockArgument argument = op.getMatchingBlockArgument(&operand);
    if (argument.use_empty())
      continue;
    if (accumulator && op.isDpsInit(&operand)) {
      mapping.map(argument, accumulator);
      continue;
    }
    if (!isa<RankedTensorType>(operand.get().getType())) {
      Value constant = outsideConstant(op, operand.get());
      if (!constant)
        return nullptr;
      mapping.map(argument, constant);
      continue;
    }
    std::optional<SmallVector<LaneIndex>> indices = operandIndices(operand, loops);
    if (!indices) {
      op.emitError("an indexing map that is not affine in the lanes is not supported");
      return nullptr;
    }
    Value element = emit(operand.get(), *indices);
    if (!element)
      return nullptr;
    mapping.map(argument, element);
  }
  for (Operation &inner : body.without_terminator()) {
    if (auto index = dyn_cast<linalg::IndexOp>(inner)) {
      const LaneIndex &loop = loops[index.getDim()];
      Value value = loop.base;
      if (lanes > 1 && !loop.isUniform()) {
        SmallVector<Value> perLane;
        for (int64_t lane = 0; lane < lanes; ++lane)
          perLane.push_back(math.add(loop.base, lane * loop.stride));
        value = vector::FromElementsOp::create(builder, inner.getLoc(), VectorType::get(lanes, builder.getIndexType()),
                                               perLane);
      }
      mapping.map(index.getResult(), value);
      continue;
    }
    if (auto extract = dyn_cast<tensor::ExtractOp>(inner)) {
      Value element = emitExtract(extract, loops, mapping);
      if (!element)
        return nullptr;
      mapping.map(extract.getResult(), element);
      continue;
    }
    if (!cloneOp(inner, mapping))
      return nullptr;
  }
  Value result = body.getTerminator()->getOperand(resultNumber);
  Value yielded = mapping.lookupOrNull(result);
  if (!yielded)
    yielded = outsideConstant(op, result);
  return yielded ? splat(op.getLoc(), yielded) : nullptr;
}

// True where `value` of a body is the same in all lanes: nothing that it is computed from moves with them.
static bool isUniformInBody(Value value, ArrayRef<LaneIndex> loops) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto generic = dyn_cast<GenericOp>(argument.getOwner()->getParentOp());
    if (!generic)
      return true;
    AffineMap map = generic.getMatchingIndexingMap(generic.getMatchingOpOperand(argument));
    return llvm::all_of(llvm::enumerate(loops),
                        [&](auto loop) { return loop.value().isUniform() || !map.isFunctionOfDim(loop.index()); });
  }
  Operation *op = value.getDefiningOp();
  if (auto index = dyn_cast<linalg::IndexOp>(op))
    return loops[index.getDim()].isUniform();
  return op->hasTrait<OpTrait::ConstantLike>() ||
         (isa<GenericOp>(op->getParentOp()) &&
          llvm::all_of(op->getOperands(), [&](Value operand) { return isUniformInBody(operand, loops); }));
}

// An element at a place that the body computes. What is out of range is taken to the last element, so that no memory
// but the tensor's is read. Lanes are neighbours where only a loop's own index moves.
Value ElementEmitter::emitExtract(tensor::ExtractOp op, ArrayRef<LaneIndex> loops, const IRMapping &mapping) {
  Location loc = op.getLoc();
  IndexMath math(builder, loc);
  auto lane = [&](Value value, int64_t number) -> Value {
    return isa<VectorType>(value.getType()) ? vector::ExtractOp::create(builder, loc, value, number).getResult()
                                            : value;
  };
  ArrayRef<int64_t> shape = op.getTensor().getType().getShape();
  SmallVector<LaneIndex> indices;
  SmallVector<Value> places;
  bool staysTogether = true;
  for (auto [index, extent] : llvm::zip_equal(op.getIndices(), shape)) {
    Value place = mapping.lookupOrNull(index);
    if (!place && !(place = outsideConstant(op, index)))
      return nullptr;
    places.push_back(place);
    auto loop = index.getDefiningOp<linalg::IndexOp>();
    bool isInside = loop && op->getParentOfType<GenericOp>().getStaticLoopRanges()[loop.getDim()] <= extent;
    if (isInside)
      indices.push_back(loops[loop.getDim()]);
    else if (lanes == 1 || isUniformInBody(index, loops))
      indices.push_back({math.min(lane(place, 0), math.constant(extent - 1)), 0, 1});
    else
      staysTogether = false;
  }
  if (staysTogether)
    return emit(op.getTensor(), indices);
  SmallVector<Value> elements;
  for (int64_t number = 0; number < lanes; ++number) {
    SmallVector<LaneIndex> own;
    for (auto [place, extent] : llvm::zip_equal(places, shape))
      own.push_back({math.min(lane(place, number), math.constant(extent - 1)), 0, 1});
    Value element = ElementEmitter(builder, tile, 1).emit(op.getTensor(), own);
    if (!element)
      return nullptr;
    elements.push_back(element);
  }
  return vector::FromElementsOp::create(builder, loc, VectorType::get(lanes, elements[0].getType()), elements);
}

// Clones a scalar op of a body; with lanes, the op of the same name on vectors.
Value ElementEmitter::cloneOp(Operation &op, IRMapping &mapping) {
  if (op.hasTrait<OpTrait::ConstantLike>()) {
    mapping.map(op.getResult(0), builder.clone(op)->getResult(0));
    return mapping.lookup(op.getResult(0));
  }
  if (op.getNumRegions() != 0 || (lanes > 1 && !OpTrait::hasElementwiseMappableTraits(&op))) {
    op.emitError() << "'" << op.getName() << "' in the body of a linalg op is not supported";
    return nullptr;
  }
  SmallVector<Value> operands;
  bool anyVector = false;
  for (Value operand : op.getOperands()) {
    Value value = mapping.lookupOrNull(operand);
    if (!value) {
      value = outsideConstant(&op, operand);
      if (!value)
        return nullptr;
      mapping.map(operand, value);
    }
    anyVector |= isa<VectorType>(value.getType());
    operands.push_back(value);
  }
  SmallVector<Type> types(op.getResultTypes());
  if (anyVector)
    for (auto [index, operand] : llvm::enumerate(operands))
      operands[index] = splat(op.getLoc(), operand);
  if (anyVector)
    for (Type &type : types)
      type = VectorType::get(lanes, type);
  OperationState state(op.getLoc(), op.getName(), operands, types, op.getAttrs());
  state.propertiesAttr = op.getPropertiesAsAttribute();
  Operation *clone = builder.create(state);
  mapping.map(op.getResults(), clone->getResults());
  return clone->getResult(0);
}

//===----------------------------------------------------------------------===//
// Views
//===----------------------------------------------------------------------===//

// Row-major position of a group of coordinates.
static LaneIndex linearize(const IndexMath &math, ArrayRef<LaneIndex> indices, ArrayRef<int64_t> extents) {
  LaneIndex linear{math.constant(0), 0, int64_t(1) << 20};
  for (auto [index, extent] : llvm::zip(indices, extents)) {
    linear.base = math.add(math.mul(linear.base, extent), index.base);
    linear.stride = linear.stride * extent + index.stride;
    linear.divisor = std::gcd(linear.divisor * extent, index.divisor);
  }
  return linear;
}

// The inverse, where the lanes stay within the innermost extent.
static std::optional<SmallVector<LaneIndex>> delinearize(const IndexMath &math, const LaneIndex &linear,
                                                         ArrayRef<int64_t> extents, int64_t lanes) {
  int64_t inner = extents.empty() ? 1 : extents.back();
  bool staysInside = linear.isUniform() || (linear.stride == 1 && linear.divisor % lanes == 0 && inner % lanes == 0);
  if (!staysInside)
    return std::nullopt;
  SmallVector<LaneIndex> indices;
  for (Value coordinate : math.delinearize(linear.base, extents))
    indices.push_back({coordinate, 0, 1});
  if (!indices.empty())
    indices.back() = {indices.back().base, linear.stride, std::gcd(linear.divisor, inner)};
  return indices;
}

static std::optional<SmallVector<LaneIndex>> evaluateAll(const IndexMath &math, AffineMap map,
                                                         ArrayRef<LaneIndex> loops) {
  SmallVector<LaneIndex> indices;
  for (AffineExpr expr : map.getResults()) {
    std::optional<LaneIndex> index = evaluate(math, expr, loops);
    if (!index)
      return std::nullopt;
    indices.push_back(*index);
  }
  return indices;
}

// Where the owner of `operand`, a structured op, a view or an insertion that has the element, reads it for its own
// element at `indices`.
std::optional<SmallVector<LaneIndex>> ElementEmitter::operandIndices(OpOperand &operand, ArrayRef<LaneIndex> indices) {
  Place at = placeOf(indices);
  for (const OperandPlace &known : operandPlaces)
    if (known.operand == &operand && known.at == at)
      return known.indices;
  Operation *owner = operand.getOwner();
  std::optional<SmallVector<LaneIndex>> source;
  Value inside;
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(owner))
    source = insertedIndices(insert, indices, inside);
  else if (auto generic = dyn_cast<GenericOp>(owner))
    source = evaluateAll(IndexMath(builder, owner->getLoc()), generic.getMatchingIndexingMap(&operand), indices);
  else
    source = viewIndices(owner, indices);
  operandPlaces.push_back({&operand, at, source});
  return source;
}

std::optional<SmallVector<LaneIndex>> ElementEmitter::viewIndices(Operation *view, ArrayRef<LaneIndex> indices) {
  IndexMath math(builder, view->getLoc());
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(view)) {
    SmallVector<LaneIndex> source;
    for (ReassociationIndices group : expand.getReassociationIndices())
      source.push_back(linearize(math, indices.slice(group.front(), group.size()),
                                 expand.getResultType().getShape().slice(group.front(), group.size())));
    return source;
  }
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(view)) {
    SmallVector<LaneIndex> source;
    ArrayRef<int64_t> shape = collapse.getSrcType().getShape();
    if (collapse.getReassociationIndices().empty())
      return SmallVector<LaneIndex>(shape.size(), LaneIndex{math.constant(0)});
    for (auto [index, group] : llvm::zip(indices, collapse.getReassociationIndices())) {
      auto part = delinearize(math, index, shape.slice(group.front(), group.size()), lanes);
      if (!part)
        return std::nullopt;
      llvm::append_range(source, *part);
    }
    return source;
  }
  auto slice = cast<tensor::ExtractSliceOp>(view);
  SmallVector<LaneIndex> source;
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  size_t next = 0;
  for (size_t i = 0; i < dropped.size(); ++i) {
    int64_t offset = slice.getStaticOffset(i), step = slice.getStaticStride(i);
    LaneIndex index = dropped.test(i) ? LaneIndex{math.constant(0)} : indices[next++];
    source.push_back({math.add(math.mul(index.base, step), offset), index.stride * step,
                      offset == 0 ? index.divisor * step : std::gcd(index.divisor * step, offset)});
  }
  return source;
}

Value ElementEmitter::emitView(Operation *op, ArrayRef<LaneIndex> indices) {
  std::optional<SmallVector<LaneIndex>> source = operandIndices(op->getOpOperand(0), indices);
  return source ? emit(op->getOperand(0), *source) : emitPerLane(op->getResult(0), indices);
}

// Both tensors are read, the inserted one at its nearest element, and one value is chosen: a branch would keep loads
// apart.
Value ElementEmitter::emitInsertSlice(tensor::InsertSliceOp op, ArrayRef<LaneIndex> indices) {
  InsertSide side = sideOf(op, indices);
  if (side == InsertSide::Dest)
    return emit(op.getDest(), indices);
  Value inside;
  std::optional<SmallVector<LaneIndex>> source = side == InsertSide::Source
                                                     ? operandIndices(op.getSourceMutable(), indices)
                                                     : insertedIndices(op, indices, inside);
  if (!source)
    return emitPerLane(op.getResult(), indices);
  Value inserted = emit(op.getSource(), *source);
  if (!inserted || !inside)
    return inserted;
  Value kept = emit(op.getDest(), indices);
  return kept ? arith::SelectOp::create(builder, op.getLoc(), inside, inserted, kept).getResult() : nullptr;
}

// Where the inserted tensor has the element at `indices`, or its nearest one; `inside` says which, unless null. Nothing
// where lanes do not stay together.
std::optional<SmallVector<LaneIndex>> ElementEmitter::insertedIndices(tensor::InsertSliceOp op,
                                                                      ArrayRef<LaneIndex> indices, Value &inside) {
  IndexMath math(builder, op.getLoc());
  llvm::SmallBitVector dropped = op.getDroppedDims();
  SmallVector<LaneIndex> source;
  for (auto [dim, index] : llvm::enumerate(indices)) {
    int64_t offset = op.getStaticOffset(dim), size = op.getStaticSize(dim), step = op.getStaticStride(dim);
    bool staysTogether = index.isUniform() || (index.stride == 1 && step == 1 && offset % lanes == 0 &&
                                               size % lanes == 0 && index.divisor % lanes == 0);
    if (!staysTogether)
      return std::nullopt;
    // Below the offset this wraps around, beyond any size.
    Value local = offset == 0 ? index.base : math.sub(index.base, math.constant(offset));
    if (offset != 0 || size * step < op.getDestType().getDimSize(dim))
      inside = math.both(inside, math.less(local, size * step));
    if (step != 1) {
      Value isHit = arith::CmpIOp::create(builder, op.getLoc(), arith::CmpIPredicate::eq, math.rem(local, step),
                                          math.constant(0));
      inside = math.both(inside, isHit);
      local = math.div(local, step);
    }
    local = math.min(local, math.constant(size - (index.isUniform() ? 1 : lanes)));
    if (!dropped.test(dim))
      source.push_back({local, index.stride, index.isUniform() ? 1 : lanes});
  }
  return source;
}

// Where lanes do not stay together: each lane on its own.
Value ElementEmitter::emitPerLane(Value tensor, ArrayRef<LaneIndex> indices) {
  IndexMath math(builder, tensor.getLoc());
  SmallVector<Value> elements;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    ElementEmitter scalar(builder, tile, 1);
    SmallVector<LaneIndex> own;
    for (const LaneIndex &index : indices)
      own.push_back({math.add(index.base, lane * index.stride), 0, 1});
    Value element = scalar.emit(tensor, own);
    if (!element)
      return nullptr;
    elements.push_back(element);
  }
  return vector::FromElementsOp::create(builder, tensor.getLoc(), VectorType::get(lanes, elements[0].getType()),
                                        elements);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

// True where the lanes are neighbours in memory: only the last coordinate moves, by one element.
static bool isContiguous(ArrayRef<LaneIndex> indices) {
  return !indices.empty() && allUniform(indices.drop_back()) && indices.back().stride == 1;
}

// Bytes that the address is known to be a multiple of, where the buffer starts at a multiple of `start`.
static llvm::MaybeAlign alignmentOf(MemRefType type, ArrayRef<LaneIndex> indices, int64_t lanes, int64_t start) {
  int64_t row = type.getRank() > 1 ? type.getShape().back() : lanes;
  // A padded row has its stride, not its extent.
  SmallVector<int64_t> strides;
  int64_t offset = 0;
  if (succeeded(type.getStridesAndOffset(strides, offset)) && strides.size() > 1)
    row = strides[strides.size() - 2];
  int64_t elements = std::gcd(std::gcd(indices.back().divisor, row), int64_t(1) << 20);
  int64_t element = type.getElementTypeBitWidth() / 8;
  int64_t bytes = llvm::bit_floor<uint64_t>(elements & -elements) * element;
  return llvm::MaybeAlign(std::clamp<int64_t>(bytes, element, std::max(element, start)));
}

static SmallVector<Value> basesOf(ArrayRef<LaneIndex> indices) {
  SmallVector<Value> bases;
  for (const LaneIndex &index : indices)
    bases.push_back(index.base);
  return bases;
}

static SmallVector<Value> laneOf(const IndexMath &math, ArrayRef<LaneIndex> indices, int64_t lane) {
  SmallVector<Value> own;
  for (const LaneIndex &index : indices)
    own.push_back(math.add(index.base, lane * index.stride));
  return own;
}

// A bool is a byte in memory, as in PyTorch; any byte but zero is true.
Value ElementEmitter::truthOf(Value byte) {
  if (getElementTypeOrSelf(byte.getType()).isInteger(1))
    return byte;
  Value zero = arith::ConstantOp::create(builder, tile.getLoc(), builder.getZeroAttr(byte.getType()));
  return arith::CmpIOp::create(builder, tile.getLoc(), arith::CmpIPredicate::ne, byte, zero);
}

int64_t ElementEmitter::startOf(Value buffer) {
  return std::min(alignment, alignmentOfEntry(buffer).value_or(alignment));
}

Value ElementEmitter::load(Location loc, Value buffer, ArrayRef<LaneIndex> indices) {
  if (lanes == 1 || allUniform(indices))
    return memref::LoadOp::create(builder, loc, buffer, basesOf(indices));
  auto type = cast<MemRefType>(buffer.getType());
  VectorType vectorType = VectorType::get(lanes, type.getElementType());
  if (isContiguous(indices))
    return vector::LoadOp::create(builder, loc, vectorType, buffer, basesOf(indices), /*nontemporal=*/false,
                                  alignmentOf(type, indices, lanes, startOf(buffer)));
  IndexMath math(builder, loc);
  SmallVector<Value> elements;
  for (int64_t lane = 0; lane < lanes; ++lane)
    elements.push_back(memref::LoadOp::create(builder, loc, buffer, laneOf(math, indices, lane)));
  return vector::FromElementsOp::create(builder, loc, vectorType, elements);
}

void ElementEmitter::store(Location loc, Value value, Value buffer, ArrayRef<LaneIndex> indices) {
  Type stored = cast<MemRefType>(buffer.getType()).getElementType();
  if (getElementTypeOrSelf(value.getType()).isInteger(1) && !stored.isInteger(1)) {
    Type type = isa<VectorType>(value.getType()) ? Type(VectorType::get(lanes, stored)) : stored;
    value = arith::ExtUIOp::create(builder, loc, type, value);
  }
  if (lanes == 1) {
    memref::StoreOp::create(builder, loc, value, buffer, basesOf(indices));
    return;
  }
  value = splat(loc, value);
  auto type = cast<MemRefType>(buffer.getType());
  if (isContiguous(indices)) {
    vector::StoreOp::create(builder, loc, value, buffer, basesOf(indices), /*nontemporal=*/false,
                            alignmentOf(type, indices, lanes, startOf(buffer)));
    return;
  }
  IndexMath math(builder, loc);
  for (int64_t lane = 0; lane < lanes; ++lane)
    memref::StoreOp::create(builder, loc, vector::ExtractOp::create(builder, loc, value, lane), buffer,
                            laneOf(math, indices, lane));
}

MemRefType mlir::megakernel::typeInMemory(MemRefType type) {
  if (!type.getElementType().isInteger(1))
    return type;
  return MemRefType::Builder(type).setElementType(IntegerType::get(type.getContext(), 8));
}

void mlir::megakernel::cloneReshape(OpBuilder &builder, Operation &reshape, IRMapping &buffers) {
  Value view = builder.clone(reshape, buffers)->getResult(0);
  view.setType(typeInMemory(cast<MemRefType>(view.getType())));
}
