//===- ThreadFma.cpp - float32 multiply-adds ------------------------------===//
//
// The threads of a CTA form a square; each holds a rectangle of the tile in registers and multiplies in true float32.
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
    columns = 1;
    while (columns * columns < context.threads)
      columns *= 2;
    rows = context.threads / columns;
    perThreadM = plan.sizeOf(plan.mLoop) / rows;
    perThreadN = plan.sizeOf(plan.nLoop) / columns;
  }

  std::string check() const override {
    if (plan.sizeOf(plan.mLoop) % rows || plan.sizeOf(plan.nLoop) % columns || perThreadM < 1 || perThreadN < 1)
      return "m and n are " + std::to_string(plan.sizeOf(plan.mLoop)) + " and " +
             std::to_string(plan.sizeOf(plan.nLoop)) + ", expected multiples of " + std::to_string(rows) + " and " +
             std::to_string(columns);
    return "";
  }

  int64_t lanes() const override { return commonPowerOfTwo(perThreadN, {plan.extentOf(plan.nLoop)}); }

  SmallVector<Value> initialAccumulators() override {
    threadM = math.mul(math.div(context.thread, columns), perThreadM);
    threadN = math.mul(math.rem(context.thread, columns), perThreadN);
    auto type = VectorType::get(perThreadN, builder.getF32Type());
    Value zero = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type));
    return SmallVector<Value>(perThreadM, zero);
  }

  SmallVector<Value> multiply(Value aTile, Value bTile, ValueRange accumulators) override {
    auto loop = scf::ForOp::create(builder, loc, math.constant(0), math.constant(plan.sizeOf(plan.kLoop)),
                                   math.constant(1), accumulators);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    Value k = loop.getInductionVar();
    Value aRow = loadRow(aTile, k, threadM, perThreadM), bRow = loadRow(bTile, k, threadN, perThreadN);
    SmallVector<Value> next;
    for (int64_t i = 0; i < perThreadM; ++i) {
      Value element = vector::ExtractOp::create(builder, loc, aRow, i);
      Value repeated = vector::BroadcastOp::create(builder, loc, bRow.getType(), element);
      next.push_back(vector::FMAOp::create(builder, loc, repeated, bRow, loop.getRegionIterArg(i)));
    }
    scf::YieldOp::create(builder, loc, next);
    return SmallVector<Value>(loop.getResults());
  }

  SmallVector<std::pair<Value, Value>> resultPlaces() override {
    SmallVector<std::pair<Value, Value>> places;
    for (int64_t i = 0; i < perThreadM; ++i)
      for (int64_t j = 0; j < perThreadN; j += lanes())
        places.emplace_back(math.add(threadM, i), math.add(threadN, j));
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
  Value loadRow(Value tile, Value k, Value start, int64_t count) {
    auto type = VectorType::get(count, builder.getF32Type());
    // Rows are padded to 16 bytes and a thread starts at a multiple of `count` elements.
    return vector::LoadOp::create(
        builder, loc, type, tile, ValueRange{k, start}, /*nontemporal=*/false,
        llvm::MaybeAlign(std::min<int64_t>(16, llvm::bit_floor<uint64_t>(count & -count) * 4)));
  }

  const CtaContext &context;
  const ContractionPlan &plan;
  OpBuilder &builder;
  Location loc;
  IndexMath math;
  int64_t rows, columns, perThreadM, perThreadN;
  Value threadM, threadN;
};
} // namespace

std::unique_ptr<MultiplyUnit> mlir::megakernel::createThreadFma(const CtaContext &context,
                                                                const ContractionPlan &plan) {
  return std::make_unique<ThreadFma>(context, plan);
}
