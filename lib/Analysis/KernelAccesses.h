//===- KernelAccesses.h - what a kernel reads and writes --------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_ANALYSIS_KERNELACCESSES_H
#define TRAINKERNEL_LIB_ANALYSIS_KERNELACCESSES_H

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Scheduling/ScheduleModel.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace mlir::megakernel {

/// Size of a contiguous buffer in bytes.
int64_t bytesOfBuffer(MemRefType type);

/// True where computing element e of the tile op's results reads input `index` at element e only, so that a result
/// may be written over that input.
bool readsOwnElementOnly(TileOp tile, unsigned index);

/// Every access of a kernel in program order. An access's `op` is an index into `ops`.
struct KernelAccesses {
  SmallVector<trainkernel::Access> accesses;
  /// Of each access, the buffer or argument that it goes to.
  SmallVector<Value> buffers;
  SmallVector<Operation *> ops;

  explicit KernelAccesses(KernelOp kernel);

private:
  void addTile(TileOp tile);
  void addCommit(CommitOp commit);
  trainkernel::Access &add(Operation *op, Value buffer, bool isWrite, bool ownElementOnly);
  trainkernel::MemoryRange rangeOf(Value buffer);

  KernelOp kernel;
  /// Barriers passed, and those passed before the last one.
  trainkernel::Epochs epochs, earlyEpochs;
  /// The memory that stands for the arena.
  unsigned arena = 0;
  DenseMap<Value, unsigned> memoryOfUnplaced;
};

} // namespace mlir::megakernel

#endif
