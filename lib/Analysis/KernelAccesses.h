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

/// Every access of a kernel in program order. An access's `op` is an index into `ops`. Of a kernel that repeats these
/// are two steps: what holds from each to the next holds for any number of them.
struct KernelAccesses {
  SmallVector<trainkernel::Access> accesses;
  /// Of each access, the buffer or argument that it goes to.
  SmallVector<Value> buffers;
  SmallVector<Operation *> ops;

  /// Barriers that a step passes before the next one starts, the one in between included.
  unsigned epochsPerStep = 1;

  explicit KernelAccesses(KernelOp kernel);

private:
  void addStep();
  void addTile(TileOp tile);
  void addCommit(CommitOp commit);
  void add(Operation *op, Value buffer, bool isWrite, unsigned atEpoch, bool ownElementOnly);
  trainkernel::MemoryRange rangeOf(Value buffer);
  unsigned ownMemory(Value root, unsigned ofStep);

  KernelOp kernel;
  unsigned step = 0, epoch = 0;
  /// The memory that stands for the arena.
  unsigned arena = 0;
  /// What is neither an argument in all steps nor in the arena.
  DenseMap<std::pair<Value, unsigned>, unsigned> memoryOfOthers;
};

} // namespace mlir::megakernel

#endif
