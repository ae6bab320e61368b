//===- FragmentUnit.h - sums that lanes hold as fragments -------*- C++ -*-===//
//
// What mma.sync and wgmma share: blocks of 16 x 8 results, or 8 x 16 turned, of which each warp has some, and in which
// each lane has its four. Layouts are those of the PTX manual, "Matrix Fragments".
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_FRAGMENTUNIT_H
#define TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_FRAGMENTUNIT_H

#include "lib/Conversion/MegakernelToGPU/Contraction.h"

namespace mlir::megakernel {

class FragmentUnit : public MultiplyUnit {
public:
  /// A warp's blocks along m lie `blockDistance` rows apart.
  FragmentUnit(const CtaContext &context, const ContractionPlan &plan, int64_t blockDistance);

  std::string check() const override;
  int64_t lanes() const override { return !isTurned() && plan.extentOf(plan.nLoop) % 2 == 0 ? 2 : 1; }
  int64_t depth() const override { return stepDepth; }
  SmallVector<Value> initialAccumulators() override;
  Value hasResults(size_t) override { return isActive; }
  Value group() override { return warpGroup; }
  SmallVector<std::pair<Value, Value>> resultPlaces() override;
  Value resultValues(ValueRange accumulators, size_t index) override;

protected:
  /// Sets `warpGroup`, `warpM`, `warpN` and `isActive`.
  virtual void locateWarp(Value warp) = 0;

  /// Elements of k in a chunk that this warp's group multiplies, and where they start.
  int64_t groupDepth() const { return plan.sizeOf(plan.kLoop) / plan.layout.groups; }
  Value groupStart() { return math.mul(warpGroup, groupDepth()); }
  bool isAlongK(const SharedTile &tile) const { return tile.innerLoop == plan.kLoop; }
  /// The four elements of a block's sums, and back.
  SmallVector<Value> elementsOf(Value sum);
  Value sumOf(ArrayRef<Value> elements);
  /// Whether the product is computed transposed, since the tile has few rows: b is the first operand of mma.sync.
  bool isTurned() const { return blockShape.rows < blockShape.columns; }

  const CtaContext &context;
  const ContractionPlan &plan;
  OpBuilder &builder;
  Location loc;
  IndexMath math;
  /// Elements along k of one instruction.
  int64_t stepDepth;
  trainkernel::MatrixBlock blockShape;
  /// Blocks of this warp along m and n.
  int64_t mBlocks, nBlocks, blockDistance;
  /// The first row and column of this warp; `isActive` is null where all warps have some.
  Value lane, warpGroup, warpM, warpN, isActive;

private:
  /// Sums that a lane holds side by side: which block, which half of its long dimension, which element of the pair.
  struct Run {
    int64_t block, half, element;
  };
  SmallVector<Run> runsOf() const;
  int64_t leastRow(const Run &run) const;

  /// In the order of `resultPlaces`.
  SmallVector<Run> runs;
};

} // namespace mlir::megakernel

#endif
