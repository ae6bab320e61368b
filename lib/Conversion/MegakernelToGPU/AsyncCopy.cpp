//===- AsyncCopy.cpp - copies into shared memory under way ----------------===//

#include "lib/Conversion/MegakernelToGPU/CtaContext.h"

#include "lib/Analysis/KernelAccesses.h"
#include "lib/Conversion/Common/StepLoop.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace mlir::megakernel;

static constexpr int64_t bytesAtOnce = 16;

// The row-major position of a tile's first element.
static Value positionOf(const IndexMath &math, ArrayRef<LaneIndex> origin, ArrayRef<int64_t> shape) {
  Value position = math.constant(0);
  for (auto [index, extent] : llvm::zip(origin, shape))
    position = math.add(math.mul(position, extent), index.base);
  return position;
}

LogicalResult mlir::megakernel::emitCopyOntoChip(const CtaContext &context, const TileDomain &domain) {
  TileOp tile = domain.tile;
  OpBuilder &builder = context.builder;
  Location loc = tile.getLoc();
  IndexMath math = context.math(loc);
  Value source = tile.getInputs().front(), target = tile.getOutputs().front();
  auto type = cast<MemRefType>(target.getType());
  int64_t elementBytes = bytesOfBuffer(type) / type.getNumElements();
  int64_t items = bytesOfBuffer(type) / domain.numTiles / bytesAtOnce;
  Type i64 = builder.getI64Type(), global = LLVM::LLVMPointerType::get(builder.getContext(), 1);
  return context.forEachTile(domain, [&](ArrayRef<LaneIndex> origin) {
    return context.forEachItem(loc, items, 0, [&](Value item) {
      // Bytes can be more than an index counts.
      auto wide = [&](Value index, int64_t factor) -> Value {
        Value number = arith::IndexCastUIOp::create(builder, loc, i64, index);
        Value scale = arith::ConstantOp::create(builder, loc, builder.getI64IntegerAttr(factor));
        return arith::MulIOp::create(builder, loc, number, scale);
      };
      Value byte = arith::AddIOp::create(builder, loc, wide(positionOf(math, origin, domain.shape()), elementBytes),
                                         wide(item, bytesAtOnce));
      auto at = [&](Value buffer) -> Value {
        Value address = addressOf(builder, buffer, context.indexBits);
        return LLVM::GEPOp::create(builder, loc, address.getType(), builder.getI8Type(), address, byte);
      };
      Value from = LLVM::AddrSpaceCastOp::create(builder, loc, global, at(source));
      NVVM::CpAsyncOp::create(
          builder, loc, at(target), from, builder.getI32IntegerAttr(bytesAtOnce),
          NVVM::LoadCacheModifierKindAttr::get(builder.getContext(), NVVM::LoadCacheModifierKind::CG), Value());
      return success();
    });
  });
}
