//===- RoundInPairs.cpp - rounding to bfloat16 and back -------------------===//
//
// What is rounded as eager PyTorch rounds it, and is used in float32 then. The GPU converts single values at a quarter
// of the rate of pairs, and LLVM makes single ones where each is taken out of its vector again.
//
//===----------------------------------------------------------------------===//

#include "lib/Conversion/MegakernelToGPU/CtaContext.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::megakernel;

// The rounding that `op` takes back, where it has pairs.
static arith::TruncFOp roundingOf(arith::ExtFOp op) {
  auto rounding = op.getIn().getDefiningOp<arith::TruncFOp>();
  auto type = dyn_cast<VectorType>(op.getType());
  if (!rounding || !rounding->hasOneUse() || !type || type.getNumElements() % 2 != 0 ||
      !getElementTypeOrSelf(rounding.getType()).isBF16() || rounding.getIn().getType() != type)
    return nullptr;
  return rounding;
}

// bfloat16 is the upper half of float32; the first of two lies in the lower half of a word.
static void roundPair(OpBuilder &builder, Location loc, Value values, int64_t first, SmallVector<Value> &rounded) {
  auto pairOf = [&](Type element) { return VectorType::get(2, element); };
  SmallVector<Value> lanes;
  for (int64_t lane : {first, first + 1})
    lanes.push_back(vector::ExtractOp::create(builder, loc, values, lane));
  Value pair = vector::FromElementsOp::create(builder, loc, pairOf(builder.getF32Type()), lanes);
  pair = arith::TruncFOp::create(builder, loc, pairOf(builder.getBF16Type()), pair);
  Type word = builder.getI32Type();
  Value bits = vector::BitCastOp::create(builder, loc, VectorType::get(1, word), pair);
  bits = vector::ExtractOp::create(builder, loc, bits, 0);
  auto constant = [&](int32_t value) -> Value {
    return arith::ConstantOp::create(builder, loc, builder.getI32IntegerAttr(value));
  };
  Value low = arith::ShLIOp::create(builder, loc, bits, constant(16));
  Value high = arith::AndIOp::create(builder, loc, bits, constant(~0xffff));
  for (Value half : {low, high})
    rounded.push_back(arith::BitcastOp::create(builder, loc, builder.getF32Type(), half));
}

void mlir::megakernel::roundInPairs(ModuleOp module) {
  SmallVector<arith::ExtFOp> found;
  module.walk([&](arith::ExtFOp op) {
    if (roundingOf(op))
      found.push_back(op);
  });
  for (arith::ExtFOp op : found) {
    arith::TruncFOp rounding = roundingOf(op);
    OpBuilder builder(op);
    SmallVector<Value> rounded;
    auto type = cast<VectorType>(op.getType());
    for (int64_t lane = 0; lane < type.getNumElements(); lane += 2)
      roundPair(builder, op.getLoc(), rounding.getIn(), lane, rounded);
    op.replaceAllUsesWith(vector::FromElementsOp::create(builder, op.getLoc(), type, rounded).getResult());
    op.erase();
    rounding.erase();
  }
}
