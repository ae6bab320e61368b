//===- Contraction.h - matrix products on a CTA -----------------*- C++ -*-===//
//
// Both operands of a tile are staged through shared memory, k chunk by k chunk; the prologue is computed on the way
// in. What multiplies them is one of two units: MatrixUnit (mma.sync) or ThreadFma (float32 multiply-adds).
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_CONTRACTION_H
#define TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_CONTRACTION_H

#include "lib/Conversion/MegakernelToGPU/CtaContext.h"

namespace mlir::megakernel {

/// Accumulators in registers, and what to do with them.
class MultiplyUnit {
public:
  virtual ~MultiplyUnit() = default;
  /// Says what tile sizes the unit cannot take; nothing where it can.
  virtual std::string check() const = 0;
  virtual SmallVector<Value> initialAccumulators() = 0;
  /// Adds the product of the staged tiles, or of the part of k that this thread's group has.
  virtual SmallVector<Value> multiply(Value aTile, Value bTile, ValueRange accumulators) = 0;
  /// Where each run of `lanes()` results along n that this thread holds lies in the tile: (m, n).
  virtual SmallVector<std::pair<Value, Value>> resultPlaces() = 0;
  /// The values of run `index` of `resultPlaces`.
  virtual Value resultValues(ValueRange accumulators, size_t index) = 0;
  /// Holds where this thread has the results of run `index`; null where every thread has.
  virtual Value hasResults(size_t index) { return nullptr; }
  /// The part of k that this thread multiplies.
  virtual Value group() = 0;
  /// After the last product, with all threads: makes the results available.
  virtual LogicalResult meet(ValueRange accumulators) { return success(); }
  virtual int64_t lanes() const = 0;
  /// How many products one addition to an accumulator takes in.
  virtual int64_t depth() const = 0;
};

/// Adds up what the groups of threads have in their accumulators and deals the sums out to all threads. Its
/// `initialAccumulators` and `multiply` are those of the unit.
std::unique_ptr<MultiplyUnit> createPartialSums(const CtaContext &context, const ContractionPlan &plan,
                                                std::unique_ptr<MultiplyUnit> unit);
std::unique_ptr<MultiplyUnit> createMatrixUnit(const CtaContext &context, const ContractionPlan &plan);
std::unique_ptr<MultiplyUnit> createThreadFma(const CtaContext &context, const ContractionPlan &plan);

/// One operand, and where its shared tile lies.
struct StagedOperand {
  OpOperand *operand;
  const SharedTile &tile;
  Value memory;
};

/// Fills the operands' shared tiles with the elements at the loop indices `base` and following.
LogicalResult stageOperands(const CtaContext &context, TileDomain &domain, const ContractionPlan &plan,
                            ArrayRef<StagedOperand> operands, ArrayRef<LaneIndex> base);

} // namespace mlir::megakernel

#endif
