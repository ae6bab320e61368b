//===- WarpUnit.h - products by warps with matrix units ---------*- C++ -*-===//
//
// What all mma.sync instructions share: which warp has which blocks, how operands come from shared memory with
// ldmatrix.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_WARPUNIT_H
#define TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_WARPUNIT_H

#include "lib/Conversion/MegakernelToGPU/FragmentUnit.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace mlir::megakernel {

class WarpUnit : public FragmentUnit {
public:
  WarpUnit(const CtaContext &context, const ContractionPlan &plan);

  SmallVector<Value> multiply(Value aTile, Value bTile, ValueRange accumulators) override;

protected:
  /// Adds the products of one step, which starts at `k` of the chunk, to the sums of all blocks.
  virtual void multiplyStep(Value aTile, Value bTile, Value k, MutableArrayRef<Value> sums) = 0;
  /// Ahead of `multiply`, on all warps.
  virtual void prepare(Value bTile) {}
  /// `multiply` on warps that have a part of the tile.
  virtual SmallVector<Value> multiplyActive(Value aTile, Value bTile, ValueRange accumulators);

  /// One ldmatrix: `tiles` blocks of eight rows of 16 bytes, one register each. Blocks run down m (or n), from `start`,
  /// first where `downFirst`, else along k.
  SmallVector<Value> loadMatrices(Value memory, const SharedTile &tile, Value start, Value k, int64_t tiles,
                                  bool downFirst);
  /// The fragments of two neighbouring blocks of b, or of one where there is no second: two registers each.
  void loadPairOfB(Value memory, int64_t block, Value k, SmallVectorImpl<SmallVector<Value>> &fragments);
  /// One mma.sync of fragments that are operands of `type`, with the addends of four results.
  SmallVector<Value> multiplyAdd(NVVM::MMATypes type, ArrayRef<Value> a, ArrayRef<Value> b, ArrayRef<Value> addends);

private:
  void locateWarp(Value warp) override;
  Value addressOf(Value memory, const SharedTile &tile, Value outer, Value inner);
  SmallVector<Value> multiplySteps(Value aTile, Value bTile, Value start, int64_t depth, ValueRange accumulators);
};

} // namespace mlir::megakernel

#endif
