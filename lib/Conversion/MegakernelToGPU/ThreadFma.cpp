//===- ThreadFma.cpp - float32 multiply-adds ------------------------------===//
//
// Each thread of a group holds a rectangle of the tile in registers and multiplies in true float32.
//
//===----------------------------------------------------------------------===//

#include "lib/Conversion/MegakernelToGPU/Contraction.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::megakernel;

namespace {
class ThreadFma : public MultiplyUnit {
public:
  ThreadFma(const CtaContext &context, const ContractionPlan &plan)
      : context(context), plan(plan), builder(context.builder), loc(plan.op->getLoc()), math(builder, loc) {
    perThreadM = plan.sizeOf(plan.mLoop) / plan.layout.rows;
    perThreadN = plan.sizeOf(plan.nLoop) / plan.layout.columns;
  }

  std::string check() const override { return ""; }
  Value hasResults(size_t) override { return isActive; }
  Value group() override { return threadGroup; }

  int64_t depth() const override { return 1; }
  int64_t lanes() const override {
    return isSpread(plan.b) ? 1 : commonPowerOfTwo(perThreadN, {plan.extentOf(plan.nLoop)});
  }

  SmallVector<Value> initialAccumulators() override {
    const trainkernel::ThreadLayout &layout = plan.layout;
    isActive = layout.used() < context.threads ? math.less(context.thread, layout.used()) : Value();
    threadGroup = math.rem(math.div(context.thread, layout.perGroup()), layout.groups);
    threadM = math.rem(math.div(context.thread, layout.columns), layout.rows);
    threadN = math.rem(context.thread, layout.columns);
    auto type = VectorType::get(perThreadN, builder.getF32Type());
    Value zero = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type));
    return SmallVector<Value>(perThreadM, zero);
  }

  // Threads without a part of the tile multiply along and are never asked for results.
  SmallVector<Value> multiply(Value aTile, Value bTile, ValueRange accumulators) override {
    int64_t depth = plan.sizeOf(plan.kLoop) / plan.layout.groups;
    int64_t perVector = commonPowerOfTwo(4, {depth}), unrolled = commonPowerOfTwo(16, {depth});
    Value start = math.mul(threadGroup, depth);
    auto loop =
        scf::ForOp::create(builder, loc, math.constant(0), math.constant(depth), math.constant(unrolled), accumulators);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    SmallVector<Value> sums(loop.getRegionIterArgs());
    for (int64_t step = 0; step < unrolled; step += perVector)
      multiplyVectors(aTile, bTile, math.add(math.add(start, loop.getInductionVar()), step), perVector, sums);
    scf::YieldOp::create(builder, loc, sums);
    return SmallVector<Value>(loop.getResults());
  }

  SmallVector<std::pair<Value, Value>> resultPlaces() override {
    SmallVector<std::pair<Value, Value>> places;
    for (int64_t i = 0; i < perThreadM; ++i)
      for (int64_t j = 0; j < perThreadN; j += lanes())
        places.emplace_back(ownIndex(plan.a, threadM, i, perThreadM, plan.layout.rows),
                            ownIndex(plan.b, threadN, j, perThreadN, plan.layout.columns));
    return places;
  }

  Value resultValues(ValueRange accumulators, size_t index) override {
    int64_t runs = perThreadN / lanes(), start = index % runs * lanes();
    Value row = accumulators[index / runs];
    if (lanes() == 1)
      return vector::ExtractOp::create(builder, loc, row, start);
    if (lanes() == perThreadN)
      return row;
    return vector::ExtractStridedSliceOp::create(builder, loc, row, ArrayRef<int64_t>{start},
                                                 ArrayRef<int64_t>{lanes()}, ArrayRef<int64_t>{1});
  }

private:
  // Where rows run along k, neighbouring threads read neighbouring rows, so that they meet different banks; where rows
  // run along m or n, each thread reads elements that lie together.
  bool isSpread(const SharedTile &tile) const { return tile.innerLoop == plan.kLoop; }

  // Element number `i` of the thread along m or n.
  Value ownIndex(const SharedTile &tile, Value thread, int64_t i, int64_t perThread, int64_t numThreads) {
    return isSpread(tile) ? math.add(thread, i * numThreads) : math.add(math.mul(thread, perThread), i);
  }

  // The thread's elements for k, k + 1 and so on: one list for each.
  SmallVector<SmallVector<Value>> load(Value memory, const SharedTile &tile, Value k, int64_t depth, Value thread,
                                       int64_t perThread, int64_t numThreads) {
    SmallVector<SmallVector<Value>> elements(depth, SmallVector<Value>(perThread));
    if (isSpread(tile)) {
      for (int64_t i = 0; i < perThread; ++i) {
        Value row = loadRow(memory, ownIndex(tile, thread, i, perThread, numThreads), k, depth);
        for (int64_t step = 0; step < depth; ++step)
          elements[step][i] = vector::ExtractOp::create(builder, loc, row, step);
      }
      return elements;
    }
    for (int64_t step = 0; step < depth; ++step) {
      Value row = loadRow(memory, math.add(k, step), math.mul(thread, perThread), perThread);
      for (int64_t i = 0; i < perThread; ++i)
        elements[step][i] = vector::ExtractOp::create(builder, loc, row, i);
    }
    return elements;
  }

  void multiplyVectors(Value aTile, Value bTile, Value k, int64_t depth, SmallVector<Value> &sums) {
    auto a = load(aTile, plan.a, k, depth, threadM, perThreadM, plan.layout.rows);
    auto b = load(bTile, plan.b, k, depth, threadN, perThreadN, plan.layout.columns);
    auto type = VectorType::get(perThreadN, builder.getF32Type());
    for (int64_t step = 0; step < depth; ++step) {
      Value row = vector::FromElementsOp::create(builder, loc, type, b[step]);
      for (auto [i, sum] : llvm::enumerate(sums)) {
        Value repeated = vector::BroadcastOp::create(builder, loc, type, a[step][i]);
        sum = vector::FMAOp::create(builder, loc, repeated, row, sum);
      }
    }
  }

  Value loadRow(Value tile, Value outer, Value inner, int64_t count) {
    auto type = VectorType::get(count, builder.getF32Type());
    // Rows are padded to 16 bytes and a run starts at a multiple of its length.
    return vector::LoadOp::create(
        builder, loc, type, tile, ValueRange{outer, inner}, /*nontemporal=*/false,
        llvm::MaybeAlign(std::min<int64_t>(16, llvm::bit_floor<uint64_t>(count & -count) * 4)));
  }

  const CtaContext &context;
  const ContractionPlan &plan;
  OpBuilder &builder;
  Location loc;
  IndexMath math;
  int64_t perThreadM, perThreadN;
  Value threadGroup, threadM, threadN, isActive;
};
} // namespace

std::unique_ptr<MultiplyUnit> mlir::megakernel::createThreadFma(const CtaContext &context,
                                                                const ContractionPlan &plan) {
  return std::make_unique<ThreadFma>(context, plan);
}
