//===- FragmentUnit.cpp - sums that lanes hold as fragments ---------------===//

#include "lib/Conversion/MegakernelToGPU/FragmentUnit.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::megakernel;

FragmentUnit::FragmentUnit(const CtaContext &context, const ContractionPlan &plan, int64_t blockDistance)
    : context(context), plan(plan), builder(context.builder), loc(plan.op->getLoc()), math(builder, loc),
      stepDepth(trainkernel::findMatrixStep(plan.multiplier)->depth),
      blockShape(trainkernel::matrixBlockOf(plan.sizeOf(plan.mLoop))),
      mBlocks(plan.sizeOf(plan.mLoop) / blockShape.rows / plan.layout.rows),
      nBlocks(plan.sizeOf(plan.nLoop) / blockShape.columns / plan.layout.columns), blockDistance(blockDistance),
      runs(runsOf()) {}

std::string FragmentUnit::check() const {
  int64_t m = plan.sizeOf(plan.mLoop), n = plan.sizeOf(plan.nLoop), k = plan.sizeOf(plan.kLoop);
  if (m % blockShape.rows == 0 && n % blockShape.columns == 0 && k % stepDepth == 0)
    return "";
  return "m, n and k are " + std::to_string(m) + ", " + std::to_string(n) + " and " + std::to_string(k) +
         ", expected multiples of " + std::to_string(blockShape.rows) + ", " + std::to_string(blockShape.columns) +
         " and " + std::to_string(stepDepth);
}

SmallVector<Value> FragmentUnit::initialAccumulators() {
  // Also computes where this warp works, ahead of the loop over chunks.
  lane = math.rem(context.thread, 32);
  locateWarp(math.div(context.thread, 32));
  auto type = VectorType::get({2, 2}, builder.getF32Type());
  Value zero = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type));
  return SmallVector<Value>(mBlocks * nBlocks, zero);
}

// A lane holds two neighbours of a block's short dimension at lane / 4 and at lane / 4 + 8 of its long one, which is m,
// or n where the block is turned.
SmallVector<FragmentUnit::Run> FragmentUnit::runsOf() const {
  SmallVector<Run> all;
  for (int64_t block = 0; block < mBlocks * nBlocks; ++block)
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t element = 0; element < 2; element += lanes())
        all.push_back({block, half, element});
  llvm::erase_if(all, [&](const Run &run) { return leastRow(run) >= plan.rows; });
  return all;
}

// The row of the first lane, which no other lane's lies before.
int64_t FragmentUnit::leastRow(const Run &run) const {
  return run.block / nBlocks * blockDistance + (isTurned() ? run.element : run.half * 8);
}

SmallVector<std::pair<Value, Value>> FragmentUnit::resultPlaces() {
  Value first = math.div(lane, 4), pair = math.mul(math.rem(lane, 4), 2);
  SmallVector<std::pair<Value, Value>> places;
  for (const Run &run : runs) {
    int64_t along = run.half * 8, across = run.element;
    Value m = math.add(warpM, run.block / nBlocks * blockDistance + (isTurned() ? across : along));
    Value n = math.add(warpN, run.block % nBlocks * blockShape.columns + (isTurned() ? along : across));
    places.emplace_back(math.add(m, isTurned() ? pair : first), math.add(n, isTurned() ? first : pair));
  }
  return places;
}

Value FragmentUnit::resultValues(ValueRange accumulators, size_t index) {
  const Run &run = runs[index];
  Value pair = vector::ExtractOp::create(builder, loc, accumulators[run.block], run.half);
  return lanes() == 2 ? pair : vector::ExtractOp::create(builder, loc, pair, run.element).getResult();
}

SmallVector<Value> FragmentUnit::elementsOf(Value sum) {
  SmallVector<Value> elements;
  for (int64_t i = 0; i < 4; ++i)
    elements.push_back(vector::ExtractOp::create(builder, loc, sum, ArrayRef<int64_t>{i / 2, i % 2}));
  return elements;
}

Value FragmentUnit::sumOf(ArrayRef<Value> elements) {
  return vector::FromElementsOp::create(builder, loc, VectorType::get({2, 2}, builder.getF32Type()), elements);
}
