//===- ScheduleModel.cpp - is a schedule free of races --------------------===//

#include "lib/Scheduling/ScheduleModel.h"

#include <algorithm>

using namespace trainkernel;

SyncScope trainkernel::scopeBetween(const Access &a, const Access &b, const Placement &placement) {
  if (!a.range.overlaps(b.range) || (!a.isWrite && !b.isWrite))
    return SyncScope::None;
  // Elements of different buffers that share memory do not lie on each other one by one.
  if (!a.footprint || !b.footprint || !(a.range == b.range))
    return placement.joinAll();
  return a.isWrite ? scopeBetween(*a.footprint, *b.footprint, placement)
                   : scopeBetween(*b.footprint, *a.footprint, placement);
}

// The scope that is missing between two accesses, none where they are ordered.
static SyncScope missingScope(const Access &a, const Access &b, const Placement &placement) {
  if (a.epochs.differ(b.epochs, SyncScope::Grid) || !a.range.overlaps(b.range))
    return SyncScope::None;
  if (a.op == b.op) {
    // One op: its own reads are safe where they stay within the element; two of its outputs are never one memory.
    const Access &read = a.isWrite ? b : a;
    if (!read.isWrite && read.ownElementOnly && a.epochs == b.epochs)
      return SyncScope::None;
  }
  SyncScope needed = scopeBetween(a, b, placement);
  return a.epochs.differ(b.epochs, needed) ? SyncScope::None : needed;
}

// True where earlier writes cover the whole range.
static bool isInitialized(llvm::ArrayRef<Access> accesses, unsigned index, const Placement &placement) {
  const Access &read = accesses[index];
  llvm::SmallVector<std::pair<int64_t, int64_t>> written;
  for (const Access &write : accesses.take_front(index))
    if (write.isWrite && write.op != read.op && write.range.overlaps(read.range) &&
        missingScope(write, read, placement) == SyncScope::None)
      written.emplace_back(write.range.begin, write.range.end);
  std::sort(written.begin(), written.end());
  int64_t covered = read.range.begin;
  for (auto [begin, end] : written)
    if (begin <= covered)
      covered = std::max(covered, end);
  return covered >= read.range.end;
}

llvm::SmallVector<Conflict> trainkernel::findConflicts(llvm::ArrayRef<Access> accesses, const Placement &placement) {
  llvm::SmallVector<Conflict> conflicts;
  for (unsigned i = 0; i < accesses.size(); ++i) {
    const Access &access = accesses[i];
    for (unsigned j = 0; j < i; ++j) {
      const Access &earlier = accesses[j];
      if (!earlier.range.overlaps(access.range) || (!earlier.isWrite && !access.isWrite))
        continue;
      SyncScope missing = missingScope(earlier, access, placement);
      if (missing != SyncScope::None)
        conflicts.push_back({Conflict::Race, j, i, missing});
      else if (access.wantsInitial && earlier.isWrite && earlier.op != access.op)
        conflicts.push_back({Conflict::Overwritten, j, i});
    }
    if (!access.isWrite && !access.wantsInitial && !isInitialized(accesses, i, placement))
      conflicts.push_back({Conflict::Uninitialized, i, i});
  }
  return conflicts;
}
