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

/// An operand's tile in shared memory: rows of `inner` elements, `pitch` apart.
struct SharedTile {
  /// The loops that the rows and the elements of a row run over.
  unsigned outerLoop, innerLoop;
  int64_t outer, inner, pitch;
  Type element;
  int64_t byteOffset = 0;

  int64_t bytes() const { return outer * pitch * element.getIntOrFloatBitWidth() / 8; }
};

/// Everything about a contraction tile that is known before code is emitted.
struct ContractionPlan {
  explicit ContractionPlan(const TileDomain &domain);

  int64_t sharedBytes() const { return b.byteOffset + b.bytes(); }
  int64_t extentOf(unsigned loop) const { return extents[loop]; }
  int64_t sizeOf(unsigned loop) const { return tileSizes[loop]; }

  linalg::GenericOp op;
  ContractionLoops loops;
  unsigned mLoop, nLoop, kLoop;
  SmallVector<int64_t> extents, tileSizes;
  bool onMatrixUnit;
  /// a is the operand over m and k, b the one over k and n.
  OpOperand *aOperand, *bOperand;
  SharedTile a, b;
  /// Chunks along each reduction loop.
  SmallVector<int64_t> chunkCounts;
  int64_t numChunks = 1;
};

/// Accumulators in registers, and what to do with them.
class MultiplyUnit {
public:
  virtual ~MultiplyUnit() = default;
  /// Says what tile sizes the unit cannot take; nothing where it can.
  virtual std::string check() const = 0;
  virtual SmallVector<Value> initialAccumulators() = 0;
  /// Adds the product of the staged tiles.
  virtual SmallVector<Value> multiply(Value aTile, Value bTile, ValueRange accumulators) = 0;
  /// Calls `body` for each run of `lanes` results along n that this thread holds, with their coordinates in the tile.
  virtual LogicalResult forEachResult(ValueRange accumulators,
                                      function_ref<LogicalResult(Value m, Value n, Value values)> body) = 0;
  virtual int64_t lanes() const = 0;
};

std::unique_ptr<MultiplyUnit> createMatrixUnit(const CtaContext &context, const ContractionPlan &plan);
std::unique_ptr<MultiplyUnit> createThreadFma(const CtaContext &context, const ContractionPlan &plan);

/// Fills an operand's shared tile with the elements at the loop indices `base` and following.
LogicalResult stage(const CtaContext &context, TileDomain &domain, const ContractionPlan &plan, OpOperand *operand,
                    const SharedTile &tile, Value memory, ArrayRef<LaneIndex> base);

} // namespace mlir::megakernel

#endif
