//===- KernelAccesses.h - what a kernel reads and writes --------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_ANALYSIS_KERNELACCESSES_H
#define TRAINKERNEL_LIB_ANALYSIS_KERNELACCESSES_H

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Analysis/TileFootprint.h"
#include "lib/Scheduling/ScheduleModel.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace mlir::megakernel {

/// Size of a contiguous buffer in bytes.
int64_t bytesOfBuffer(MemRefType type);

/// True where computing element e of the tile op's results reads input `index` at element e only, so that a result
/// may be written over that input.
bool readsOwnElementOnly(TileOp tile, unsigned index);

/// Every access of a kernel in program order. An access's `op` is an index into `ops`. Of a kernel that repeats these
/// are two steps: between steps that are further apart stand the same accesses and more barriers. They are three where
/// a buffer alternates, whose places two steps share that are two apart.
struct KernelAccesses {
  /// An op of one of the steps.
  struct OpInStep {
    Operation *op;
    unsigned step;
    /// Barriers that its phase comes after, and how far its CTA is once it has arrived at the last one of them.
    trainkernel::Epochs epochs, earlyEpochs;
  };

  SmallVector<trainkernel::Access> accesses;
  /// Of each access, the buffer or argument that it goes to.
  SmallVector<Value> buffers;
  SmallVector<OpInStep> ops;

  explicit KernelAccesses(KernelOp kernel);

private:
  void addStep();
  void pass(Scope scope);
  void addOp(Operation *op);
  void addTile(TileOp tile);
  void addCommit(CommitOp commit);
  trainkernel::Access &add(Value buffer, bool isWrite, bool ownElementOnly);
  trainkernel::MemoryRange rangeOf(Value buffer);
  unsigned ownMemory(Value root, unsigned ofStep);

  KernelOp kernel;
  unsigned step = 0;
  /// Barriers passed, and how far a CTA is that has arrived at the last one.
  trainkernel::Epochs epochs, earlyEpochs;
  /// The memory that stands for the arena.
  unsigned arena = 0;
  /// What is neither an argument in all steps nor in the arena.
  DenseMap<std::pair<Value, unsigned>, unsigned> memoryOfOthers;
  /// Of each tile op, those of the first step, which are those of the second one.
  DenseMap<Operation *, TileFootprints> footprints;
};

} // namespace mlir::megakernel

#endif
