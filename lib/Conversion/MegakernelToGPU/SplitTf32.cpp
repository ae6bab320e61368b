//===- SplitTf32.cpp - float32 by matrix units, in two tf32 parts ---------===//
//
// x = high + low, where high is x rounded to the eleven bits of tf32 and low what is missing, which has twelve: matrix
// units drop at most the last. A product is low * high + high * low + high * high; low * low is below its rounding.
//
// Matrix units cut off what does not fit into their sums instead of rounding it. Sums that stayed in them would drift
// towards zero with the length of the product, so each step starts at zero, and a float32 addition adds it to the sums.
//
// An infinity, a NaN or a value that would round to an infinity has a part that is not finite, and then so is every
// result that it belongs to. Where a thread sees such a sum, it multiplies its chunk again in float32: what is infinite
// or NaN in true float32 is so here, and nothing else.
//
//===----------------------------------------------------------------------===//

#include "lib/Conversion/MegakernelToGPU/WarpUnit.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::megakernel;

namespace {
/// A fragment's registers, in the two parts of their elements.
struct Parts {
  SmallVector<Value> high, low;
};

class SplitTf32 : public WarpUnit {
public:
  using WarpUnit::WarpUnit;

private:
  SmallVector<Value> multiplyActive(Value aTile, Value bTile, ValueRange accumulators) override {
    SmallVector<Value> sums = WarpUnit::multiplyActive(aTile, bTile, accumulators);
    auto branch = scf::IfOp::create(builder, loc, TypeRange(accumulators), areFinite(sums), /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(branch.thenBlock());
    scf::YieldOp::create(builder, loc, sums);
    builder.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(builder, loc, multiplyInFloat32(aTile, bTile, accumulators));
    return SmallVector<Value>(branch.getResults());
  }

  void multiplyStep(Value aTile, Value bTile, Value k, MutableArrayRef<Value> sums) override {
    SmallVector<Parts> a, b;
    for (int64_t i = 0; i < mBlocks; ++i)
      a.push_back(split(loadFragmentOfA(aTile, i, k)));
    for (const SmallVector<Value> &fragment : loadFragmentsOfB(bTile, k))
      b.push_back(split(fragment));
    for (int64_t i = 0; i < mBlocks; ++i)
      for (int64_t j = 0; j < nBlocks; ++j) {
        Value &sum = sums[i * nBlocks + j];
        SmallVector<Value> elements = elementsOf(sum);
        for (auto [element, product] : llvm::zip(elements, multiplyParts(a[i], b[j])))
          element = arith::AddFOp::create(builder, loc, element, product);
        sum = sumOf(elements);
      }
  }

  // The smallest first.
  SmallVector<Value> multiplyParts(const Parts &a, const Parts &b) {
    Value zero = arith::ConstantOp::create(builder, loc, builder.getF32FloatAttr(0));
    SmallVector<Value> sums(4, zero);
    sums = multiplyAdd(NVVM::MMATypes::tf32, a.low, b.high, sums);
    sums = multiplyAdd(NVVM::MMATypes::tf32, a.high, b.low, sums);
    return multiplyAdd(NVVM::MMATypes::tf32, a.high, b.high, sums);
  }

  // Integer arithmetic rounds to nearest in two instructions; PTX's conversion takes four, which look for NaN. A NaN
  // may become a finite high part here, but its low part is a NaN.
  Parts split(ArrayRef<Value> registers) {
    Type i32 = builder.getI32Type(), f32 = builder.getF32Type();
    auto constant = [&](int32_t bits) {
      return arith::ConstantOp::create(builder, loc, builder.getI32IntegerAttr(bits)).getResult();
    };
    Parts parts;
    for (Value bits : registers) {
      Value raised = arith::AddIOp::create(builder, loc, bits, constant(1 << 12));
      Value high = arith::AndIOp::create(builder, loc, raised, constant(-(1 << 13)));
      Value whole = arith::BitcastOp::create(builder, loc, f32, bits);
      Value low = arith::SubFOp::create(builder, loc, whole, arith::BitcastOp::create(builder, loc, f32, high));
      parts.high.push_back(high);
      parts.low.push_back(arith::BitcastOp::create(builder, loc, i32, low));
    }
    return parts;
  }

  // ldmatrix moves rows of 16 bytes, which four lanes share: lane l gets element l % 4 of row l / 4, as a fragment has
  // it where rows run along k. It can transpose 16-bit elements only.
  SmallVector<Value> loadFragmentOfA(Value memory, int64_t block, Value k) {
    Value start = math.add(warpM, block * 16);
    if (isAlongK(plan.a))
      return loadMatrices(memory, plan.a, start, k, 4, /*downFirst=*/true);
    SmallVector<Value> registers;
    for (int64_t alongK : {0, 4})
      for (int64_t down : {0, 8})
        registers.push_back(loadAcross(memory, math.add(start, down), math.add(k, alongK)));
    return registers;
  }

  SmallVector<SmallVector<Value>> loadFragmentsOfB(Value memory, Value k) {
    SmallVector<SmallVector<Value>> fragments;
    if (isAlongK(plan.b)) {
      for (int64_t j = 0; j < nBlocks; j += 2)
        loadPairOfB(memory, j, k, fragments);
      return fragments;
    }
    for (int64_t j = 0; j < nBlocks; ++j) {
      Value start = math.add(warpN, j * 8);
      fragments.push_back({loadAcross(memory, start, k), loadAcross(memory, start, math.add(k, 4))});
    }
    return fragments;
  }

  // The lane's element of an 8x4 block whose rows in memory run along m or n.
  Value loadAcross(Value memory, Value start, Value k) {
    Value outer = math.add(k, math.rem(lane, 4)), inner = math.add(start, math.div(lane, 4));
    Value element = memref::LoadOp::create(builder, loc, memory, ValueRange{outer, inner});
    return arith::BitcastOp::create(builder, loc, builder.getI32Type(), element);
  }

  // x * 0 is NaN for what is not finite, and a sum keeps it.
  Value areFinite(ValueRange sums) {
    Value zero = arith::ConstantOp::create(builder, loc, builder.getF32FloatAttr(0));
    SmallVector<Value> zeros(4, zero), marks = zeros;
    for (Value sum : sums)
      marks = multiplyAddEach(elementsOf(sum), zeros, marks);
    Value mark = marks[0];
    for (Value other : ArrayRef<Value>(marks).drop_front())
      mark = arith::AddFOp::create(builder, loc, mark, other);
    return arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OEQ, mark, zero);
  }

  // a * b + c of the four elements of a block, in float32.
  SmallVector<Value> multiplyAddEach(ArrayRef<Value> a, ArrayRef<Value> b, ArrayRef<Value> c) {
    SmallVector<Value> sums;
    for (auto [left, right, sum] : llvm::zip(a, b, c))
      sums.push_back(LLVM::FMAOp::create(builder, loc, left, right, sum));
    return sums;
  }

  // The thread's own results, one k after the other.
  SmallVector<Value> multiplyInFloat32(Value aTile, Value bTile, ValueRange accumulators) {
    auto loop =
        scf::ForOp::create(builder, loc, math.constant(0), math.constant(groupDepth()), math.constant(1), accumulators);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    Value k = math.add(groupStart(), loop.getInductionVar());
    Value row = math.add(warpM, math.div(lane, 4)), column = math.add(warpN, math.mul(math.rem(lane, 4), 2));
    SmallVector<Value> a, b, sums;
    for (int64_t i = 0; i < 2 * mBlocks; ++i)
      a.push_back(loadElement(aTile, plan.a, math.add(row, i * 8), k));
    for (int64_t j = 0; j < nBlocks; ++j)
      for (int64_t element = 0; element < 2; ++element)
        b.push_back(loadElement(bTile, plan.b, math.add(column, j * 8 + element), k));
    for (auto [index, sum] : llvm::enumerate(loop.getRegionIterArgs())) {
      int64_t i = index / nBlocks, j = index % nBlocks;
      SmallVector<Value> rows = {a[2 * i], a[2 * i], a[2 * i + 1], a[2 * i + 1]};
      SmallVector<Value> columns = {b[2 * j], b[2 * j + 1], b[2 * j], b[2 * j + 1]};
      sums.push_back(sumOf(multiplyAddEach(rows, columns, elementsOf(sum))));
    }
    scf::YieldOp::create(builder, loc, sums);
    return SmallVector<Value>(loop.getResults());
  }

  Value loadElement(Value memory, const SharedTile &tile, Value down, Value k) {
    SmallVector<Value> indices = isAlongK(tile) ? SmallVector<Value>{down, k} : SmallVector<Value>{k, down};
    return memref::LoadOp::create(builder, loc, memory, indices);
  }
};
} // namespace

std::unique_ptr<MultiplyUnit> mlir::megakernel::createSplitTf32(const CtaContext &context,
                                                                const ContractionPlan &plan) {
  return std::make_unique<SplitTf32>(context, plan);
}
