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

/// The phases of a kernel in order, each with the epoch that it stands in.
SmallVector<std::pair<PhaseOp, unsigned>> phasesWithEpochs(KernelOp kernel);

/// A phase, how many barriers stand before it, and what its tile ops must leave alone of shared memory: bytes from the
/// start that hold kept operands, and those and buffers.
struct PhaseInMemory {
  PhaseOp phase;
  unsigned epoch;
  int64_t keptBytes, reservedBytes;
};

/// In order.
SmallVector<PhaseInMemory> phasesInMemory(KernelOp kernel);

/// The buffer on chip that a value is, or is a reshape of; null where it is none.
BufferOp onChipBufferOf(Value value);

/// The parts of a buffer on chip.
trainkernel::Parts partsOf(BufferOp buffer);

/// Puts a buffer on chip, in parts from byte `at` of shared memory on.
void placeOnChip(BufferOp buffer, int64_t at, const trainkernel::Parts &parts);

/// True where a tile op does no more than copy parts of a buffer or argument into a buffer on chip.
bool isCopyOntoChip(TileOp tile);

} // namespace mlir::megakernel

#endif
