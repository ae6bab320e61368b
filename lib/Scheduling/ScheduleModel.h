//===- ScheduleModel.h - is a schedule free of races ------------*- C++ -*-===//
//
// A schedule as a list of accesses and barriers. It answers what is unordered, knowing nothing of MLIR.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_SCHEDULING_SCHEDULEMODEL_H
#define TRAINKERNEL_LIB_SCHEDULING_SCHEDULEMODEL_H

#include "lib/Scheduling/Placement.h"

#include <memory>

namespace trainkernel {

/// A range of one memory: the arena is one memory, every argument another; an output that may be the memory of the
/// state that it replaces has that state's memory.
struct MemoryRange {
  unsigned memory = 0;
  int64_t begin = 0, end = 0;
  /// Bytes of an element of what lies there.
  int64_t elementBytes = 1;
  bool overlaps(const MemoryRange &other) const {
    return memory == other.memory && begin < other.end && other.begin < end;
  }
  bool operator==(const MemoryRange &other) const {
    return memory == other.memory && begin == other.begin && end == other.end && elementBytes == other.elementBytes;
  }
};

struct Access {
  MemoryRange range;
  bool isWrite = false;
  /// The op that makes the access.
  unsigned op = 0;
  /// Barriers that it comes after.
  Epochs epochs;
  /// True where each tile of the op reads only the elements that it itself writes, and reads them first.
  bool ownElementOnly = false;
  /// True for a read that wants what the memory held before the launch: that of an input.
  bool wantsInitial = false;
  /// Which CTA touches which elements; null where all may touch all.
  std::shared_ptr<const Footprint> footprint;
};

/// The least scope of a barrier that orders two accesses; none where they touch nothing in common or only read.
SyncScope scopeBetween(const Access &a, const Access &b, const Placement &placement);

struct Conflict {
  enum Kind { Race, Uninitialized, Overwritten } kind;
  unsigned first = 0, second = 0;
  /// For a race: the least scope that would order the two.
  SyncScope scope = SyncScope::None;
};

/// Pairs of accesses that nothing orders and of which one is a write, reads of what no earlier access wrote, and reads
/// of inputs that an earlier access overwrote. The accesses are in program order.
llvm::SmallVector<Conflict> findConflicts(llvm::ArrayRef<Access> accesses, const Placement &placement);

} // namespace trainkernel

#endif
