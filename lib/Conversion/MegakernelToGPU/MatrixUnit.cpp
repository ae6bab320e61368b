//===- MatrixUnit.cpp - mma.sync with ldmatrix ----------------------------===//
//
// m16n8k16 products of bfloat16 or float16, accumulated in float32. Fragment layouts are those of the PTX manual,
// "Matrix Fragments for mma.m16n8k16".
//
//===----------------------------------------------------------------------===//

#include "lib/Conversion/MegakernelToGPU/Contraction.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::megakernel;

namespace {
class MatrixUnit : public MultiplyUnit {
public:
  MatrixUnit(const CtaContext &context, const ContractionPlan &plan)
      : context(context), plan(plan), builder(context.builder), loc(plan.op->getLoc()), math(builder, loc) {
    mBlocks = plan.sizeOf(plan.mLoop) / 16 / plan.layout.rows;
    nBlocks = plan.sizeOf(plan.nLoop) / 8 / plan.layout.columns;
  }

  std::string check() const override {
    if (plan.sizeOf(plan.mLoop) % 16 || plan.sizeOf(plan.nLoop) % 8 || plan.sizeOf(plan.kLoop) % 16)
      return "m, n and k are " + std::to_string(plan.sizeOf(plan.mLoop)) + ", " +
             std::to_string(plan.sizeOf(plan.nLoop)) + " and " + std::to_string(plan.sizeOf(plan.kLoop)) +
             ", expected multiples of 16, 8 and 16";
    return "";
  }

  int64_t lanes() const override { return plan.extentOf(plan.nLoop) % 2 == 0 ? 2 : 1; }
  int64_t depth() const override { return 16; }

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

  Value hasResults(size_t) override { return isActive; }
  Value group() override { return warpGroup; }

  // A lane holds two neighbours along n in rows lane / 4 and lane / 4 + 8 of each 16x8 block.
  SmallVector<std::pair<Value, Value>> resultPlaces() override {
    Value row = math.div(lane, 4), column = math.mul(math.rem(lane, 4), 2);
    SmallVector<std::pair<Value, Value>> places;
    for (int64_t i = 0; i < mBlocks; ++i)
      for (int64_t j = 0; j < nBlocks; ++j)
        for (int64_t half = 0; half < 2; ++half)
          for (int64_t element = 0; element < 2; element += lanes())
            places.emplace_back(math.add(math.add(warpM, i * 16 + half * 8), row),
                                math.add(math.add(warpN, j * 8 + element), column));
    return places;
  }

  Value resultValues(ValueRange accumulators, size_t index) override {
    int64_t perHalf = 2 / lanes(), half = index / perHalf % 2, block = index / perHalf / 2;
    Value pair = vector::ExtractOp::create(builder, loc, accumulators[block], half);
    return lanes() == 2 ? pair : vector::ExtractOp::create(builder, loc, pair, index % 2).getResult();
  }

private:
  void locateWarp() {
    const trainkernel::ThreadLayout &layout = plan.layout;
    Value warp = math.div(context.thread, 32);
    lane = math.rem(context.thread, 32);
    isActive = layout.used() * 32 < context.threads ? math.less(warp, layout.used()) : Value();
    warpGroup = math.rem(math.div(warp, layout.perGroup()), layout.groups);
    warpM = math.mul(math.rem(math.div(warp, layout.columns), layout.rows), mBlocks * 16);
    warpN = math.mul(math.rem(warp, layout.columns), nBlocks * 8);
  }

  // One ldmatrix: `tiles` 8x8 blocks, one register each. Lane l gives the address of row l % 8 of block l / 8; blocks
  // run down m (or n) first where `downFirst`, else along k.
  SmallVector<Value> loadFragment(Value memory, const SharedTile &tile, Value start, Value k, int64_t tiles,
                                  bool downFirst) {
    bool kInner = tile.innerLoop == plan.kLoop;
    Value row = math.rem(lane, 8), first = math.rem(math.div(lane, 8), 2);
    Value second = tiles == 2 ? math.constant(0) : math.div(lane, 16);
    Value downBlock = downFirst ? first : second, kBlock = downFirst ? second : first;
    Value down = math.add(start, math.mul(downBlock, 8)), along = math.add(k, math.mul(kBlock, 8));
    Value outer = kInner ? math.add(down, row) : math.add(along, row), inner = kInner ? along : down;
    Value address = addressOf(memory, tile, outer, inner);
    Type i32 = builder.getI32Type();
    auto type = LLVM::LLVMStructType::getLiteral(builder.getContext(), SmallVector<Type>(tiles, i32));
    Value loaded = NVVM::LdMatrixOp::create(
        builder, loc, type, address, tiles, kInner ? NVVM::MMALayout::row : NVVM::MMALayout::col,
        NVVM::LdStMatrixShapeAttr::get(builder.getContext(), 8, 8), NVVM::LdStMatrixEltType::B16);
    SmallVector<Value> registers;
    for (int64_t i = 0; i < tiles; ++i)
      registers.push_back(LLVM::ExtractValueOp::create(builder, loc, loaded, i));
    return registers;
  }

  // A pointer into shared memory, built from 32-bit arithmetic.
  Value addressOf(Value memory, const SharedTile &tile, Value outer, Value inner) {
    Value element = math.add(math.mul(outer, tile.pitch), inner);
    Value base = memref::ExtractAlignedPointerAsIndexOp::create(builder, loc, memory);
    Value byte = math.add(base, math.mul(element, tile.element.getIntOrFloatBitWidth() / 8));
    Value bits = arith::IndexCastUIOp::create(builder, loc, builder.getI32Type(), byte);
    auto space = static_cast<unsigned>(NVVM::NVVMMemorySpace::Shared);
    return LLVM::IntToPtrOp::create(builder, loc, LLVM::LLVMPointerType::get(builder.getContext(), space), bits);
  }

  // nvvm.mma.sync takes bfloat16 pairs as i32 and float16 pairs as vectors.
  SmallVector<Value> asOperand(ArrayRef<Value> registers) {
    if (plan.a.element.isBF16())
      return SmallVector<Value>(registers);
    SmallVector<Value> pairs;
    for (Value bits : registers)
      pairs.push_back(LLVM::BitcastOp::create(builder, loc, VectorType::get(2, plan.a.element), bits));
    return pairs;
  }

  Value multiplyAdd(ArrayRef<Value> a, ArrayRef<Value> b, Value sum) {
    SmallVector<Value> addend;
    for (int64_t i = 0; i < 4; ++i)
      addend.push_back(vector::ExtractOp::create(builder, loc, sum, ArrayRef<int64_t>{i / 2, i % 2}));
    Type f32 = builder.getF32Type();
    auto type = LLVM::LLVMStructType::getLiteral(builder.getContext(), {f32, f32, f32, f32});
    NVVM::MMATypes element = plan.a.element.isBF16() ? NVVM::MMATypes::bf16 : NVVM::MMATypes::f16;
    Value product = NVVM::MmaOp::create(
        builder, loc, type, asOperand(a), asOperand(b), addend, ArrayRef<int64_t>{16, 8, 16},
        /*b1Op=*/std::nullopt, /*intOverflow=*/std::nullopt, std::array<NVVM::MMATypes, 2>{element, element},
        std::array<NVVM::MMALayout, 2>{NVVM::MMALayout::row, NVVM::MMALayout::col});
    SmallVector<Value> elements;
    for (int64_t i = 0; i < 4; ++i)
      elements.push_back(LLVM::ExtractValueOp::create(builder, loc, product, i));
    return vector::FromElementsOp::create(builder, loc, sum.getType(), elements);
  }

  // Fully unrolled, a deep chunk would be more code than it is worth.
  SmallVector<Value> multiplyActive(Value aTile, Value bTile, ValueRange accumulators) {
    constexpr int64_t unrolled = 64;
    int64_t depth = plan.sizeOf(plan.kLoop) / plan.layout.groups;
    Value start = math.mul(warpGroup, depth);
    if (depth <= 2 * unrolled || depth % unrolled != 0)
      return multiplySteps(aTile, bTile, start, depth, accumulators);
    auto loop =
        scf::ForOp::create(builder, loc, math.constant(0), math.constant(depth), math.constant(unrolled), accumulators);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    scf::YieldOp::create(
        builder, loc,
        multiplySteps(aTile, bTile, math.add(start, loop.getInductionVar()), unrolled, loop.getRegionIterArgs()));
    return SmallVector<Value>(loop.getResults());
  }

  SmallVector<Value> multiplySteps(Value aTile, Value bTile, Value start, int64_t depth, ValueRange accumulators) {
    SmallVector<Value> result(accumulators);
    for (int64_t step = 0; step < depth; step += 16) {
      Value k = math.add(start, step);
      SmallVector<SmallVector<Value>> aFragments, bFragments;
      for (int64_t i = 0; i < mBlocks; ++i)
        aFragments.push_back(loadFragment(aTile, plan.a, math.add(warpM, i * 16), k, 4, /*downFirst=*/true));
      for (int64_t j = 0; j < nBlocks; j += 2) {
        // Two blocks at once where there are two.
        int64_t blocks = std::min<int64_t>(2, nBlocks - j);
        SmallVector<Value> loaded =
            loadFragment(bTile, plan.b, math.add(warpN, j * 8), k, 2 * blocks, /*downFirst=*/false);
        for (int64_t block = 0; block < blocks; ++block)
          bFragments.push_back({loaded[2 * block], loaded[2 * block + 1]});
      }
      for (int64_t i = 0; i < mBlocks; ++i)
        for (int64_t j = 0; j < nBlocks; ++j) {
          Value &sum = result[i * nBlocks + j];
          sum = multiplyAdd(aFragments[i], bFragments[j], sum);
        }
    }
    return result;
  }

  const CtaContext &context;
  const ContractionPlan &plan;
  OpBuilder &builder;
  Location loc;
  IndexMath math;
  int64_t mBlocks, nBlocks;
  Value lane, warpGroup, warpM, warpN, isActive;
};
} // namespace

std::unique_ptr<MultiplyUnit> mlir::megakernel::createMatrixUnit(const CtaContext &context,
                                                                 const ContractionPlan &plan) {
  return std::make_unique<MatrixUnit>(context, plan);
}
