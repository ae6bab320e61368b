//===- MatrixUnit.cpp - mma.sync with ldmatrix ----------------------------===//
//
// m16n8k16 products of bfloat16 or float16, accumulated in float32. Fragment layouts are those of the PTX manual,
// "Matrix Fragments for mma.m16n8k16".
//
//===----------------------------------------------------------------------===//

#include "lib/Conversion/MegakernelToGPU/Contraction.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::megakernel;

namespace {
class MatrixUnit : public MultiplyUnit {
public:
  MatrixUnit(const CtaContext &context, const ContractionPlan &plan)
      : context(context), plan(plan), builder(context.builder), loc(plan.op->getLoc()), math(builder, loc) {
    int64_t rowBlocks = plan.sizeOf(plan.mLoop) / 16, columnBlocks = plan.sizeOf(plan.nLoop) / 8;
    chooseWarpGrid(rowBlocks, columnBlocks);
    mBlocks = rowBlocks / std::max<int64_t>(1, warpRows);
    nBlocks = columnBlocks / std::max<int64_t>(1, warpColumns);
  }

  std::string check() const override {
    if (plan.sizeOf(plan.mLoop) % 16 || plan.sizeOf(plan.nLoop) % 8 || plan.sizeOf(plan.kLoop) % 16)
      return "m, n and k are " + std::to_string(plan.sizeOf(plan.mLoop)) + ", " +
             std::to_string(plan.sizeOf(plan.nLoop)) + " and " + std::to_string(plan.sizeOf(plan.kLoop)) +
             ", expected multiples of 16, 8 and 16";
    return "";
  }

  int64_t lanes() const override { return plan.extentOf(plan.nLoop) % 2 == 0 ? 2 : 1; }

  SmallVector<Value> initialAccumulators() override {
    // Also computes where this warp works, ahead of the loop over chunks.
    locateWarp();
    auto type = VectorType::get({2, 2}, builder.getF32Type());
    Value zero = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type));
    return SmallVector<Value>(mBlocks * nBlocks, zero);
  }

  SmallVector<Value> multiply(Value aTile, Value bTile, ValueRange accumulators) override {
    if (!isActive)
      return multiplyActive(aTile, bTile, accumulators);
    auto branch = scf::IfOp::create(builder, loc, TypeRange(accumulators), isActive, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(branch.thenBlock());
    scf::YieldOp::create(builder, loc, multiplyActive(aTile, bTile, accumulators));
    builder.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(builder, loc, accumulators);
    return SmallVector<Value>(branch.getResults());
  }

  LogicalResult forEachResult(ValueRange accumulators,
                              function_ref<LogicalResult(Value, Value, Value)> body) override {
    return context.when(loc, isActive, [&] { return forEachActiveResult(accumulators, body); });
  }

private:
  // As many of the CTA's warps as there are blocks for, as square as can be.
  void chooseWarpGrid(int64_t rowBlocks, int64_t columnBlocks) {
    int64_t warps = context.threads / 32;
    auto score = [](int64_t rows, int64_t columns) { return rows * columns * 64 - std::abs(rows * 2 - columns); };
    for (int64_t rows = 1; rows <= warps; rows *= 2)
      for (int64_t columns = 1; rows * columns <= warps; columns *= 2)
        if (rowBlocks % rows == 0 && columnBlocks % columns == 0 &&
            score(rows, columns) > score(warpRows, warpColumns)) {
          warpRows = rows;
          warpColumns = columns;
        }
  }

  void locateWarp() {
    Value warp = math.div(context.thread, 32);
    lane = math.rem(context.thread, 32);
    int64_t used = warpRows * warpColumns;
    isActive = used * 32 < context.threads ? math.less(warp, used) : Value();
    warpM = math.mul(math.rem(math.div(warp, warpColumns), warpRows), mBlocks * 16);
    warpN = math.mul(math.rem(warp, warpColumns), nBlocks * 8);
  }

  // One ldmatrix: `tiles` 8x8 blocks. Lane l gives the address of row l % 8 of block l / 8; blocks run down m (or k)
  // first where `downFirst`, else across.
  Value loadFragment(Value memory, const SharedTile &tile, Value start, Value k, int64_t tiles, bool downFirst) {
    bool kInner = tile.innerLoop == plan.kLoop;
    Value row = math.rem(lane, 8), first = math.rem(math.div(lane, 8), 2), second = math.div(lane, 16);
    if (tiles == 2)
      second = math.constant(0);
    // Offsets of the lane's row along m or n, and along k.
    Value outerBlock = downFirst ? first : second, kBlock = downFirst ? second : first;
    Value along = math.add(start, math.mul(outerBlock, 8)), inK = math.add(k, math.mul(kBlock, 8));
    SmallVector<Value> indices = kInner ? SmallVector<Value>{math.add(along, row), inK}
                                        : SmallVector<Value>{math.add(inK, row), along};
    auto type = VectorType::get({tiles, 2}, tile.element);
    return nvgpu::LdMatrixOp::create(builder, loc, type, memory, indices, /*transpose=*/!kInner, tiles);
  }

  SmallVector<Value> multiplyActive(Value aTile, Value bTile, ValueRange accumulators) {
    SmallVector<Value> result(accumulators);
    for (int64_t k = 0; k < plan.sizeOf(plan.kLoop); k += 16) {
      Value kValue = math.constant(k);
      SmallVector<Value> aFragments, bFragments;
      for (int64_t i = 0; i < mBlocks; ++i)
        aFragments.push_back(loadFragment(aTile, plan.a, math.add(warpM, i * 16), kValue, 4, /*downFirst=*/true));
      for (int64_t j = 0; j < nBlocks; ++j)
        bFragments.push_back(loadFragment(bTile, plan.b, math.add(warpN, j * 8), kValue, 2, /*downFirst=*/false));
      for (int64_t i = 0; i < mBlocks; ++i)
        for (int64_t j = 0; j < nBlocks; ++j) {
          Value &sum = result[i * nBlocks + j];
          sum = nvgpu::MmaSyncOp::create(builder, loc, aFragments[i], bFragments[j], sum,
                                         ArrayRef<int64_t>{16, 8, 16});
        }
    }
    return result;
  }

  // A lane holds two neighbours along n in rows lane / 4 and lane / 4 + 8 of each 16x8 block.
  LogicalResult forEachActiveResult(ValueRange accumulators, function_ref<LogicalResult(Value, Value, Value)> body) {
    Value row = math.div(lane, 4), column = math.mul(math.rem(lane, 4), 2);
    for (int64_t i = 0; i < mBlocks; ++i)
      for (int64_t j = 0; j < nBlocks; ++j)
        for (int64_t half = 0; half < 2; ++half) {
          Value pair = vector::ExtractOp::create(builder, loc, accumulators[i * nBlocks + j], half);
          Value m = math.add(math.add(warpM, i * 16 + half * 8), row);
          Value n = math.add(math.add(warpN, j * 8), column);
          if (lanes() == 2) {
            if (failed(body(m, n, pair)))
              return failure();
            continue;
          }
          for (int64_t element = 0; element < 2; ++element)
            if (failed(body(m, math.add(n, element), vector::ExtractOp::create(builder, loc, pair, element))))
              return failure();
        }
    return success();
  }

  const CtaContext &context;
  const ContractionPlan &plan;
  OpBuilder &builder;
  Location loc;
  IndexMath math;
  int64_t warpRows = 1, warpColumns = 1, mBlocks, nBlocks;
  Value lane, warpM, warpN, isActive;
};
} // namespace

std::unique_ptr<MultiplyUnit> mlir::megakernel::createMatrixUnit(const CtaContext &context,
                                                                 const ContractionPlan &plan) {
  return std::make_unique<MatrixUnit>(context, plan);
}
