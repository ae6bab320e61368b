//===- SharedSpace.h - room in shared memory --------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_ANALYSIS_SHAREDSPACE_H
#define TRAINKERNEL_LIB_ANALYSIS_SHAREDSPACE_H

#include "dialects/Megakernel/MegakernelDialect.h"

#include <map>

namespace mlir::megakernel {

/// Bytes of shared memory from one barrier's epoch to another's, both included.
struct SharedRange {
  int64_t begin = 0, end = 0;
  unsigned firstEpoch = 0, lastEpoch = 0;
};

/// The shared memory of a CTA over a step: what the phases leave of it for buffers, and who has it.
class SharedSpace {
public:
  SharedSpace(KernelOp kernel, int64_t limit);

  /// A range that is free for so long, or nothing.
  std::optional<SharedRange> find(int64_t bytes, unsigned firstEpoch, unsigned lastEpoch) const;
  /// Gives `owner` a range that is free, instead of the one it had.
  void take(size_t owner, const SharedRange &range) { taken[owner] = range; }
  /// Takes back what an owner has, and returns it.
  std::optional<SharedRange> release(size_t owner);

private:
  /// Between two barriers: what is there already ends at `start`; behind buffers, tile ops need `needed` bytes.
  struct Epoch {
    int64_t start = 0, needed = 0;
  };

  int64_t limit;
  SmallVector<Epoch> epochs;
  std::map<size_t, SharedRange> taken;
};

/// What the phases of a kernel need, up to `limit` bytes.
int64_t sharedBytesOf(KernelOp kernel, int64_t limit);

} // namespace mlir::megakernel

#endif
