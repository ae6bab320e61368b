//===- SharedSpace.cpp - room in shared memory ----------------------------===//

#include "lib/Analysis/SharedSpace.h"

#include "lib/Analysis/OnChip.h"
#include "lib/Analysis/TileGeometry.h"

using namespace mlir;
using namespace mlir::megakernel;

SharedSpace::SharedSpace(KernelOp kernel, int64_t limit) : limit(limit), epochs(1) {
  for (const PhaseInMemory &phase : phasesInMemory(kernel)) {
    epochs.resize(phase.epoch + 1);
    int64_t start = llvm::alignTo(phase.reservedBytes, 16);
    Epoch &epoch = epochs.back();
    epoch.start = std::max(epoch.start, start);
    SharedLayout layout(phase, kernel.getThreads(), limit);
    // Wherever it starts in the end, it is aligned.
    epoch.needed = std::max(epoch.needed, layout.bytes - start + layout.alignment - 16);
  }
}

std::optional<SharedRange> SharedSpace::find(int64_t bytes, unsigned firstEpoch, unsigned lastEpoch) const {
  ArrayRef<Epoch> lifetime = ArrayRef<Epoch>(epochs).slice(firstEpoch, lastEpoch - firstEpoch + 1);
  SharedRange range{0, 0, firstEpoch, lastEpoch};
  for (const Epoch &epoch : lifetime)
    range.begin = std::max(range.begin, epoch.start);
  SmallVector<std::pair<int64_t, int64_t>> live;
  for (const auto &[owner, other] : taken)
    if (other.firstEpoch <= lastEpoch && firstEpoch <= other.lastEpoch)
      live.emplace_back(other.begin, other.end);
  llvm::sort(live);
  for (auto [begin, end] : live)
    if (begin < range.begin + bytes)
      range.begin = std::max(range.begin, end);
  range.end = range.begin + llvm::alignTo(bytes, 16);
  bool fits = llvm::all_of(lifetime, [&](const Epoch &epoch) { return range.end + epoch.needed <= limit; });
  return fits ? std::optional(range) : std::nullopt;
}

std::optional<SharedRange> SharedSpace::release(size_t owner) {
  auto known = taken.find(owner);
  if (known == taken.end())
    return std::nullopt;
  SharedRange range = known->second;
  taken.erase(known);
  return range;
}

int64_t mlir::megakernel::sharedBytesOf(KernelOp kernel, int64_t limit) {
  int64_t bytes = 0;
  for (const PhaseInMemory &phase : phasesInMemory(kernel))
    bytes = std::max(bytes, SharedLayout(phase, kernel.getThreads(), limit).bytes);
  return bytes;
}
