//===- WarpUnit.h - products by warps with matrix units ---------*- C++ -*-===//
//
// What all mma.sync instructions with blocks of 16 x 8 results, or 8 x 16 turned, share: which warp has which blocks,
// which lane has which results, how operands come from shared memory with ldmatrix. Layouts are those of the PTX
// manual, "Matrix Fragments".
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_WARPUNIT_H
#define TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_WARPUNIT_H

#include "lib/Conversion/MegakernelToGPU/Contraction.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace mlir::megakernel {

class WarpUnit : public MultiplyUnit {
public:
  WarpUnit(const CtaContext &context, const ContractionPlan &plan);

  std::string check() const override;
  int64_t lanes() const override { return !isTurned() && plan.extentOf(plan.nLoop) % 2 == 0 ? 2 : 1; }
  int64_t depth() const override { return stepDepth; }
  SmallVector<Value> initialAccumulators() override;
  SmallVector<Value> multiply(Value aTile, Value bTile, ValueRange accumulators) override;
  Value hasResults(size_t) override { return isActive; }
  Value group() override { return warpGroup; }
  SmallVector<std::pair<Value, Value>> resultPlaces() override;
  Value resultValues(ValueRange accumulators, size_t index) override;

protected:
  /// Adds the products of one step, which starts at `k` of the chunk, to the sums of all blocks.
  virtual void multiplyStep(Value aTile, Value bTile, Value k, MutableArrayRef<Value> sums) = 0;
  /// Ahead of `multiply`, on all warps.
  virtual void prepare(Value bTile) {}
  /// `multiply` on warps that have a part of the tile.
  virtual SmallVector<Value> multiplyActive(Value aTile, Value bTile, ValueRange accumulators);

  /// Elements of k in a chunk that this warp's group multiplies, and where they start.
  int64_t groupDepth() const { return plan.sizeOf(plan.kLoop) / plan.layout.groups; }
  Value groupStart() { return math.mul(warpGroup, groupDepth()); }
  bool isAlongK(const SharedTile &tile) const { return tile.innerLoop == plan.kLoop; }
  /// One ldmatrix: `tiles` blocks of eight rows of 16 bytes, one register each. Blocks run down m (or n), from `start`,
  /// first where `downFirst`, else along k.
  SmallVector<Value> loadMatrices(Value memory, const SharedTile &tile, Value start, Value k, int64_t tiles,
                                  bool downFirst);
  /// The fragments of two neighbouring blocks of b, or of one where there is no second: two registers each.
  void loadPairOfB(Value memory, int64_t block, Value k, SmallVectorImpl<SmallVector<Value>> &fragments);
  /// One mma.sync of fragments that are operands of `type`, with the addends of four results.
  SmallVector<Value> multiplyAdd(NVVM::MMATypes type, ArrayRef<Value> a, ArrayRef<Value> b, ArrayRef<Value> addends);
  /// The four elements of a block's sums, and back.
  SmallVector<Value> elementsOf(Value sum);
  Value sumOf(ArrayRef<Value> elements);

  const CtaContext &context;
  const ContractionPlan &plan;
  OpBuilder &builder;
  Location loc;
  IndexMath math;
  /// Whether the product is computed transposed, since the tile has few rows: b is the first operand of mma.sync.
  bool isTurned() const { return blockShape.rows < blockShape.columns; }

  /// Elements along k of one instruction.
  int64_t stepDepth;
  trainkernel::MatrixBlock blockShape;
  /// Blocks of this warp along m and n.
  int64_t mBlocks, nBlocks;
  Value lane, warpGroup, warpM, warpN, isActive;

private:
  /// Sums that a lane holds side by side: which block, which half of its long dimension, which element of the pair.
  struct Run {
    int64_t block, half, element;
  };
  SmallVector<Run> runsOf() const;
  int64_t leastRow(const Run &run) const;
  void locateWarp();
  Value addressOf(Value memory, const SharedTile &tile, Value outer, Value inner);
  SmallVector<Value> multiplySteps(Value aTile, Value bTile, Value start, int64_t depth, ValueRange accumulators);

  /// In the order of `resultPlaces`.
  SmallVector<Run> runs;
};

} // namespace mlir::megakernel

#endif
