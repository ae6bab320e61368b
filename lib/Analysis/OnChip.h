//===- OnChip.h - buffers in shared memory ----------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_ANALYSIS_ONCHIP_H
#define TRAINKERNEL_LIB_ANALYSIS_ONCHIP_H

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Scheduling/Parts.h"

namespace mlir::megakernel {

/// A buffer in shared memory: its bytes on each CTA, and between which barriers it is in use. Epoch e comes after e
/// barriers of whatever scope: all of them join the threads of a CTA.
struct OnChipBuffer {
  BufferOp buffer;
  int64_t begin, end;
  unsigned firstEpoch, lastEpoch;

  bool isLiveIn(unsigned epoch) const { return firstEpoch <= epoch && epoch <= lastEpoch; }
};

SmallVector<OnChipBuffer> onChipBuffersOf(KernelOp kernel);

/// How many barriers stand before a phase.
unsigned epochOf(PhaseOp phase);

/// Bytes from the start of shared memory that the tile ops of `phase` must leave alone: kept operands and buffers.
int64_t reservedBytesAt(PhaseOp phase);

/// The parts of a buffer on chip.
trainkernel::Parts partsOf(BufferOp buffer);

/// True where a tile op does no more than copy parts of a buffer or argument into a buffer on chip.
bool isCopyOntoChip(TileOp tile);

} // namespace mlir::megakernel

#endif
