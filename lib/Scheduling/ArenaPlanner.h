//===- ArenaPlanner.h - where buffers lie in the arena ----------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_SCHEDULING_ARENAPLANNER_H
#define TRAINKERNEL_LIB_SCHEDULING_ARENAPLANNER_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <string>

namespace trainkernel {

/// A buffer that is live from epoch `first` to epoch `last`, both included. Two buffers that are never live in the
/// same epoch may share memory.
struct ArenaBuffer {
  int64_t bytes = 0;
  unsigned first = 0, last = 0;
};

struct ArenaPlan {
  llvm::SmallVector<int64_t> offsets;
  int64_t bytes = 0;
};

/// Every buffer starts at a multiple of this many bytes.
inline constexpr int64_t arenaAlignment = 256;

/// Places the largest buffers first, each in the smallest gap that its lifetime leaves free.
ArenaPlan planArena(llvm::ArrayRef<ArenaBuffer> buffers);

/// Says what is wrong with a plan, or nothing. Always run after `planArena`.
std::string verifyArena(llvm::ArrayRef<ArenaBuffer> buffers, const ArenaPlan &plan);

} // namespace trainkernel

#endif
