//===- ScheduleModel.cpp - is a schedule free of races --------------------===//

#include "lib/Scheduling/ScheduleModel.h"

#include <algorithm>

using namespace trainkernel;

static bool mayRace(const Access &a, const Access &b) {
  if (a.epoch != b.epoch || !a.range.overlaps(b.range) || (!a.isWrite && !b.isWrite))
    return false;
  if (a.op != b.op)
    return true;
  // One op: its own reads are safe where they stay within the element; two of its outputs are never one memory.
  const Access &read = a.isWrite ? b : a;
  return read.isWrite || !read.ownElementOnly;
}

// True where writes of earlier epochs cover the whole range.
static bool isInitialized(llvm::ArrayRef<Access> accesses, const Access &read) {
  llvm::SmallVector<std::pair<int64_t, int64_t>> written;
  for (const Access &write : accesses)
    if (write.isWrite && write.epoch < read.epoch && write.range.overlaps(read.range))
      written.emplace_back(write.range.begin, write.range.end);
  std::sort(written.begin(), written.end());
  int64_t covered = read.range.begin;
  for (auto [begin, end] : written)
    if (begin <= covered)
      covered = std::max(covered, end);
  return covered >= read.range.end;
}

llvm::SmallVector<Conflict> trainkernel::findConflicts(llvm::ArrayRef<Access> accesses) {
  llvm::SmallVector<Conflict> conflicts;
  for (unsigned i = 0; i < accesses.size(); ++i) {
    const Access &access = accesses[i];
    for (unsigned j = 0; j < i; ++j) {
      const Access &earlier = accesses[j];
      if (mayRace(earlier, access))
        conflicts.push_back({Conflict::Race, j, i});
      if (access.wantsInitial && earlier.isWrite && earlier.step == access.step && earlier.epoch < access.epoch &&
          earlier.range.overlaps(access.range))
        conflicts.push_back({Conflict::Overwritten, j, i});
    }
    if (access.wantsWritten && !isInitialized(accesses, access))
      conflicts.push_back({Conflict::Uninitialized, i, i});
  }
  return conflicts;
}
