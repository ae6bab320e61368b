//===- ScheduleModel.h - is a schedule free of races ------------*- C++ -*-===//
//
// A schedule as a list of accesses and barriers. It answers what is unordered, knowing nothing of MLIR.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_SCHEDULING_SCHEDULEMODEL_H
#define TRAINKERNEL_LIB_SCHEDULING_SCHEDULEMODEL_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>

namespace trainkernel {

/// A range of one memory: the arena is one memory, every argument another; an output that may be the memory of the
/// state that it replaces has that state's memory.
struct MemoryRange {
  unsigned memory = 0;
  int64_t begin = 0, end = 0;
  bool overlaps(const MemoryRange &other) const {
    return memory == other.memory && begin < other.end && other.begin < end;
  }
};

struct Access {
  MemoryRange range;
  bool isWrite = false;
  /// The op that makes the access.
  unsigned op = 0;
  /// Barriers that every CTA has passed before it.
  unsigned epoch = 0;
  /// True where each tile of the op reads only the elements that it itself writes, and reads them first.
  bool ownElementOnly = false;
  /// The step of the launch.
  unsigned step = 0;
  /// True for a read that wants what the memory held before the step: that of an input.
  bool wantsInitial = false;
  /// True for a read of what an earlier epoch must have written.
  bool wantsWritten = false;
};

struct Conflict {
  enum Kind { Race, Uninitialized, Overwritten } kind;
  unsigned first = 0, second = 0;
};

/// Pairs of accesses that nothing orders and of which one is a write, reads of what no earlier epoch wrote, and reads
/// of inputs that an earlier epoch of the same step overwrote.
llvm::SmallVector<Conflict> findConflicts(llvm::ArrayRef<Access> accesses);

} // namespace trainkernel

#endif
