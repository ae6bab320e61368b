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
  // nvvm.mma.sync takes bfloat16 pairs as i32 and float16 pairs as vectors.
  SmallVector<Value> asOperand(ArrayRef<Value> registers) {
    if (plan.a.element.isBF16())
      return SmallVector<Value>(registers);
    SmallVector<Value> pairs;
    for (Value bits : registers)
      pairs.push_back(LLVM::BitcastOp::create(builder, loc, VectorType::get(2, plan.a.element), bits));
    return pairs;
  }

  void multiplyStep(Value aTile, Value bTile, Value k, MutableArrayRef<Value> sums) override {
    SmallVector<SmallVector<Value>> aFragments, bFragments;
    for (int64_t i = 0; i < mBlocks; ++i)
      aFragments.push_back(loadMatrices(aTile, plan.a, math.add(warpM, i * 16), k, 4, /*downFirst=*/true));
    for (int64_t j = 0; j < nBlocks; j += 2)
      loadPairOfB(bTile, j, k, bFragments);
    NVVM::MMATypes type = plan.a.element.isBF16() ? NVVM::MMATypes::bf16 : NVVM::MMATypes::f16;
    for (int64_t i = 0; i < mBlocks; ++i)
      for (int64_t j = 0; j < nBlocks; ++j) {
        Value &sum = sums[i * nBlocks + j];
        SmallVector<Value> addends = elementsOf(sum);
        sum = sumOf(multiplyAdd(type, asOperand(aFragments[i]), asOperand(bFragments[j]), addends));
      }
  }
};
} // namespace

std::unique_ptr<MultiplyUnit> mlir::megakernel::createMatrixUnit(const CtaContext &context,
                                                                 const ContractionPlan &plan) {
  return std::make_unique<MatrixUnit>(context, plan);
}
