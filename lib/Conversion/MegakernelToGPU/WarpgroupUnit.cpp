//===- WarpgroupUnit.cpp - products by warpgroups, from shared memory -----===//
//
// m64nNk16 products of bfloat16 or float16, accumulated in float32 (wgmma). Four warps multiply what lies in shared
// memory, beside whatever their threads do next. Layouts are those of the PTX manual, "Asynchronous Warpgroup Level
// Matrix Instructions".
//
//===----------------------------------------------------------------------===//

#include "lib/Conversion/MegakernelToGPU/FragmentUnit.h"
#include "lib/Conversion/MegakernelToGPU/InlinePTX.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mlir::megakernel;

namespace {
class WarpgroupUnit : public FragmentUnit {
public:
  WarpgroupUnit(const CtaContext &context, const ContractionPlan &plan)
      : FragmentUnit(context, plan, trainkernel::warpgroupRows) {}

  SmallVector<Value> multiply(Value aTile, Value bTile, ValueRange accumulators) override {
    return finish(start(aTile, bTile, accumulators));
  }

  bool isAsynchronous() const override { return true; }

  void publishTiles() override {
    NVVM::FenceProxyOp::create(builder, loc,
                               NVVM::ProxyKindAttr::get(builder.getContext(), NVVM::ProxyKind::async_shared),
                               NVVM::SharedSpaceAttr::get(builder.getContext(), NVVM::SharedSpace::shared_cta));
  }

  SmallVector<Value> start(Value aTile, Value bTile, ValueRange accumulators) override {
    SmallVector<Value> registers = inRegisters(ptx::warpgroupFence, accumulators);
    Value a = placeOf(aTile, plan.a, warpM), b = placeOf(bTile, plan.b, warpN);
    int64_t perBlock = 4 * nBlocks;
    for (int64_t k = 0; k < groupDepth(); k += stepDepth)
      for (int64_t i = 0; i < mBlocks; ++i) {
        auto own = MutableArrayRef<Value>(registers).slice(i * perBlock, perBlock);
        multiplyBlock(describe(plan.a, a, i * blockDistance, k), describe(plan.b, b, 0, k), own);
      }
    ptx::emit(builder, loc, TypeRange(), {}, ptx::warpgroupCommit, "~{memory}");
    return inBlocks(registers);
  }

  SmallVector<Value> finish(ValueRange accumulators) override {
    return inBlocks(inRegisters(ptx::warpgroupWait, accumulators));
  }

private:
  // Neighbouring warpgroups share rows, as neighbouring warps of other units do.
  void locateWarp(Value warp) override {
    const trainkernel::ThreadLayout &layout = plan.layout;
    constexpr int64_t warps = trainkernel::warpgroupThreads / 32;
    Value warpgroup = math.div(warp, warps);
    Value row = math.rem(math.div(warpgroup, layout.columns), layout.rows / warps);
    warpGroup = math.div(warp, layout.perGroup());
    warpgroupM = math.mul(row, mBlocks * blockDistance);
    warpM = math.add(warpgroupM, math.mul(math.rem(warp, warps), 16));
    warpN = math.mul(math.rem(warpgroup, layout.columns), nBlocks * blockShape.columns);
  }

  // Instructions that concern all accumulators: nothing that is done to one may pass them.
  SmallVector<Value> inRegisters(StringRef text, ValueRange accumulators) {
    SmallVector<Value> elements;
    for (Value sum : accumulators)
      llvm::append_range(elements, elementsOf(sum));
    return changed(text, elements, {}, "~{memory}");
  }

  SmallVector<Value> inBlocks(ArrayRef<Value> registers) {
    SmallVector<Value> sums;
    for (size_t first = 0; first < registers.size(); first += 4)
      sums.push_back(sumOf(registers.slice(first, 4)));
    return sums;
  }

  /// The registers after an instruction that changes them.
  SmallVector<Value> changed(StringRef text, ArrayRef<Value> registers, ArrayRef<Value> others, StringRef constraints) {
    SmallVector<Value> operands(registers);
    llvm::append_range(operands, others);
    auto type = LLVM::LLVMStructType::getLiteral(builder.getContext(),
                                                 SmallVector<Type>(registers.size(), builder.getF32Type()));
    Value made =
        ptx::emit(builder, loc, type, operands, text, ptx::changing(registers.size(), constraints)).getResult(0);
    SmallVector<Value> results;
    for (size_t i = 0; i < registers.size(); ++i)
      results.push_back(LLVM::ExtractValueOp::create(builder, loc, made, i));
    return results;
  }

  void multiplyBlock(Value a, Value b, MutableArrayRef<Value> registers) {
    ptx::WarpgroupProduct product{8 * nBlocks, plan.a.element.isBF16(), !isAlongK(plan.a), !isAlongK(plan.b)};
    llvm::copy(changed(product.text(), registers, {a, b}, "l,l"), registers.begin());
  }

  /// Where the part of a tile that this warpgroup multiplies starts, in units of 16 bytes.
  Value placeOf(Value memory, const SharedTile &tile, Value down) {
    Value base = memref::ExtractAlignedPointerAsIndexOp::create(builder, loc, memory);
    Value first = &tile == &plan.a ? warpgroupM : down;
    Value place = math.add(base, math.add(bytesDown(tile, first), bytesAlongK(tile, groupStart())));
    return arith::IndexCastUIOp::create(builder, loc, builder.getI32Type(), math.div(place, 16));
  }

  // Of panels one after the other: `ContractionPlan` sees to it that parts start where panels do, or end before them.
  Value bytesAcross(const SharedTile &tile, Value inner) {
    Value panel = math.div(inner, tile.panelWidth()), rest = math.rem(inner, tile.panelWidth());
    return math.add(math.mul(panel, tile.outer * tile.swizzle), math.mul(rest, tile.elementBytes()));
  }
  Value bytesDown(const SharedTile &tile, Value start) {
    return isAlongK(tile) ? math.mul(start, tile.swizzle) : bytesAcross(tile, start);
  }
  Value bytesAlongK(const SharedTile &tile, Value k) {
    return isAlongK(tile) ? bytesAcross(tile, k) : math.mul(k, tile.swizzle);
  }

  // The "matrix descriptor" of what starts `down` rows or columns and `k` elements behind `place`.
  Value describe(const SharedTile &tile, Value place, int64_t down, int64_t k) {
    int64_t offset =
        *constantIndex(math.add(bytesDown(tile, math.constant(down)), bytesAlongK(tile, math.constant(k))));
    Type i32 = builder.getI32Type(), i64 = builder.getI64Type();
    Value distance = arith::ConstantOp::create(builder, loc, builder.getIntegerAttr(i32, offset / 16));
    Value start = arith::ExtUIOp::create(builder, loc, i64, arith::AddIOp::create(builder, loc, place, distance));
    // From panel to panel, of which one has all of k that an instruction takes, and from eight rows to the next.
    uint64_t panels = isAlongK(tile) ? 1 : tile.outer * tile.swizzle / 16, rows = 8 * tile.swizzle / 16;
    uint64_t mode = tile.swizzle == 128 ? 1 : tile.swizzle == 64 ? 2 : 3;
    uint64_t layout = panels << 16 | rows << 32 | mode << 62;
    Value bits = arith::ConstantOp::create(builder, loc, builder.getIntegerAttr(i64, static_cast<int64_t>(layout)));
    return arith::OrIOp::create(builder, loc, start, bits);
  }

  Value warpgroupM;
};
} // namespace

std::unique_ptr<MultiplyUnit> mlir::megakernel::createWarpgroupUnit(const CtaContext &context,
                                                                    const ContractionPlan &plan) {
  return std::make_unique<WarpgroupUnit>(context, plan);
}
