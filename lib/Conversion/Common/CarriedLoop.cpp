//===- CarriedLoop.cpp - loops that carry values --------------------------===//

#include "lib/Conversion/Common/CarriedLoop.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;
using namespace mlir::megakernel;

FailureOr<SmallVector<Value>> mlir::megakernel::carryThrough(OpBuilder &builder, Location loc, CarriedRange range,
                                                             ValueRange initial, CarriedBody body) {
  Value step = arith::ConstantIndexOp::create(builder, loc, range.step);
  auto loop = scf::ForOp::create(builder, loc, range.first, range.end, step, initial);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  FailureOr<SmallVector<Value>> next = body(loop.getInductionVar(), loop.getRegionIterArgs());
  if (failed(next))
    return failure();
  // A loop that carries nothing has its terminator already.
  if (!initial.empty())
    scf::YieldOp::create(builder, loc, *next);
  return SmallVector<Value>(loop.getResults());
}

FailureOr<SmallVector<Value>> mlir::megakernel::carryThrough(OpBuilder &builder, Location loc, int64_t count,
                                                             ValueRange initial, CarriedBody body) {
  if (count == 0)
    return SmallVector<Value>(initial);
  auto constant = [&](int64_t value) -> Value { return arith::ConstantIndexOp::create(builder, loc, value); };
  if (count == 1)
    return body(constant(0), initial);
  return carryThrough(builder, loc, {constant(0), constant(count), 1}, initial, body);
}

int64_t mlir::megakernel::accumulationBlock(int64_t count) {
  constexpr int64_t shortChain = 32;
  if (count <= shortChain)
    return std::max<int64_t>(count, 1);
  return llvm::PowerOf2Ceil(static_cast<uint64_t>(std::sqrt(static_cast<double>(count))));
}
