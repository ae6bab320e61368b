//===- MatrixUnit.cpp - bfloat16 and float16 by matrix units --------------===//
//
// m16n8k16 products of bfloat16 or float16, accumulated in float32.
//
//===----------------------------------------------------------------------===//

#include "lib/Conversion/MegakernelToGPU/WarpUnit.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace mlir::megakernel;

namespace {
class MatrixUnit : public WarpUnit {
public:
  using WarpUnit::WarpUnit;

private:
  /// The registers of each block.
  using Fragments = SmallVector<SmallVector<Value>>;

  // nvvm.mma.sync takes bfloat16 pairs as i32 and float16 pairs as vectors.
  SmallVector<Value> asOperand(ArrayRef<Value> registers) {
    if (plan.a.element.isBF16())
      return SmallVector<Value>(registers);
    SmallVector<Value> pairs;
    for (Value bits : registers)
      pairs.push_back(LLVM::BitcastOp::create(builder, loc, VectorType::get(2, plan.a.element), bits));
    return pairs;
  }

  // 16 rows of `tile` for the first operand of an instruction, 8 for the second one.
  SmallVector<Value> loadTall(Value memory, const SharedTile &tile, Value start, Value k) {
    return loadMatrices(memory, tile, start, k, 4, /*downFirst=*/true);
  }
  SmallVector<Value> loadShort(Value memory, const SharedTile &tile, Value start, Value k) {
    return loadMatrices(memory, tile, start, k, 2, /*downFirst=*/false);
  }

  Fragments loadRows(Value aTile, Value k) {
    Fragments fragments;
    for (int64_t i = 0; i < mBlocks; ++i) {
      Value start = math.add(warpM, i * blockShape.rows);
      fragments.push_back(isTurned() ? loadShort(aTile, plan.a, start, k) : loadTall(aTile, plan.a, start, k));
    }
    return fragments;
  }

  Fragments loadColumns(Value bTile, Value k) {
    Fragments fragments;
    for (int64_t j = 0; j < nBlocks; j += isTurned() ? 1 : 2)
      if (isTurned())
        fragments.push_back(loadTall(bTile, plan.b, math.add(warpN, j * blockShape.columns), k));
      else
        loadPairOfB(bTile, j, k, fragments);
    return fragments;
  }

  void multiplyBlocks(const Fragments &rows, ArrayRef<SmallVector<Value>> columns, MutableArrayRef<Value> sums) {
    NVVM::MMATypes type = plan.a.element.isBF16() ? NVVM::MMATypes::bf16 : NVVM::MMATypes::f16;
    for (int64_t i = 0; i < mBlocks; ++i)
      for (int64_t j = 0; j < nBlocks; ++j) {
        Value &sum = sums[i * nBlocks + j];
        SmallVector<Value> first = asOperand(rows[i]), second = asOperand(columns[j]);
        if (isTurned())
          std::swap(first, second);
        sum = sumOf(multiplyAdd(type, first, second, elementsOf(sum)));
      }
  }

  void multiplyStep(Value aTile, Value bTile, Value k, MutableArrayRef<Value> sums) override {
    multiplyBlocks(loadRows(aTile, k), loadColumns(bTile, k), sums);
  }

  // What warps hold does not depend on the tile: it is loaded for the first product that needs it.
  void prepare(Value bTile) override {
    held = nullptr;
    if (!plan.isInRegisters || !context.held || plan.numChunks > 1)
      return;
    Fragments &own = (*context.held)[{static_cast<int64_t>(*plan.keptAt), isAlongK(plan.b), plan.sizeOf(plan.nLoop),
                                      plan.sizeOf(plan.kLoop), plan.layout.rows, plan.layout.columns,
                                      plan.layout.groups, isTurned()}];
    held = &own;
    if (!plan.reusesKept)
      own.clear();
    if (!own.empty())
      return;
    Value start = groupStart();
    for (int64_t k = 0; k < groupDepth(); k += stepDepth)
      llvm::append_range(own, loadColumns(bTile, math.add(start, k)));
  }

  SmallVector<Value> multiplyActive(Value aTile, Value bTile, ValueRange accumulators) override {
    if (!held)
      return WarpUnit::multiplyActive(aTile, bTile, accumulators);
    SmallVector<Value> sums(accumulators);
    Value start = groupStart();
    for (int64_t step = 0; step * stepDepth < groupDepth(); ++step)
      multiplyBlocks(loadRows(aTile, math.add(start, step * stepDepth)), ArrayRef(*held).slice(step * nBlocks, nBlocks),
                     sums);
    return sums;
  }

  /// Null where the product reads shared memory.
  const Fragments *held = nullptr;
};
} // namespace

std::unique_ptr<MultiplyUnit> mlir::megakernel::createMatrixUnit(const CtaContext &context,
                                                                 const ContractionPlan &plan) {
  return std::make_unique<MatrixUnit>(context, plan);
}
