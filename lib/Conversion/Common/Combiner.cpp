//===- Combiner.cpp - how partial results of a reduction meet -------------===//

#include "lib/Conversion/Common/Combiner.h"

#include "lib/Conversion/Common/CarriedLoop.h"
#include "lib/Conversion/Common/IndexMath.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::megakernel;

FailureOr<Combiners> Combiners::get(linalg::GenericOp op) {
  Combiners combiners;
  for (unsigned i = 0, e = op->getNumResults(); i < e; ++i) {
    SmallVector<Operation *> combinerOps;
    Value reduced = matchReduction(op.getRegionOutputArgs(), i, combinerOps);
    std::optional<TypedAttr> identity;
    if (reduced && combinerOps.size() == 1)
      identity = arith::getNeutralElement(combinerOps.front());
    if (!identity)
      return op.emitError("a reduction whose combiner is not a single associative op is not supported");
    combiners.ops.push_back(combinerOps.front());
    combiners.identities.push_back(*identity);
  }
  return combiners;
}

SmallVector<Value> Combiners::initial(OpBuilder &builder, Location loc, int64_t lanes) const {
  SmallVector<Value> values;
  for (TypedAttr identity : identities) {
    TypedAttr attribute = identity;
    if (lanes > 1)
      attribute = DenseElementsAttr::get(VectorType::get(lanes, identity.getType()), ArrayRef<Attribute>{identity});
    values.push_back(arith::ConstantOp::create(builder, loc, attribute));
  }
  return values;
}

Value Combiners::combine(OpBuilder &builder, Location loc, unsigned index, Value a, Value b) const {
  Operation *op = ops[index];
  OperationState state(loc, op->getName(), ValueRange{a, b}, TypeRange{a.getType()});
  state.propertiesAttr = op->getPropertiesAsAttribute();
  return builder.create(state)->getResult(0);
}

FailureOr<SmallVector<Value>>
Combiners::combineInBlocks(OpBuilder &builder, Location loc, int64_t count, ValueRange totals,
                           function_ref<FailureOr<SmallVector<Value>>(Value, int64_t)> reduce) const {
  IndexMath math(builder, loc);
  int64_t block = accumulationBlock(count), rest = count % block;
  auto addBlock = [&](Value first, int64_t length, ValueRange carried) -> FailureOr<SmallVector<Value>> {
    FailureOr<SmallVector<Value>> partials = reduce(first, length);
    if (failed(partials))
      return failure();
    for (auto [index, partial] : llvm::enumerate(*partials))
      partial = combine(builder, loc, index % size(), carried[index], partial);
    return partials;
  };
  FailureOr<SmallVector<Value>> all =
      carryThrough(builder, loc, count / block, totals,
                   [&](Value number, ValueRange carried) { return addBlock(math.mul(number, block), block, carried); });
  if (failed(all) || rest == 0)
    return all;
  return addBlock(math.constant(count - rest), rest, *all);
}

Value Combiners::combineLanes(OpBuilder &builder, Location loc, unsigned index, Value vector) const {
  auto type = dyn_cast<VectorType>(vector.getType());
  if (!type)
    return vector;
  for (int64_t half = type.getNumElements() / 2; half >= 1; half /= 2) {
    auto slice = [&](int64_t offset) -> Value {
      return vector::ExtractStridedSliceOp::create(builder, loc, vector, ArrayRef<int64_t>{offset},
                                                   ArrayRef<int64_t>{half}, ArrayRef<int64_t>{1});
    };
    vector = combine(builder, loc, index, slice(0), slice(half));
  }
  return vector::ExtractOp::create(builder, loc, vector, 0);
}
