//===- ThreadLayout.h - how threads divide a contraction tile ---*- C++ -*-===//
//
// A small tile has fewer results than a CTA has threads for. The threads then form groups that each multiply a part
// of k, and the partial sums of the groups meet in shared memory.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_SCHEDULING_THREADLAYOUT_H
#define TRAINKERNEL_LIB_SCHEDULING_THREADLAYOUT_H

#include "lib/Scheduling/TargetTable.h"

#include <algorithm>

namespace trainkernel {

/// Vectors of 16 bytes that a thread may have on their way at once while operands are staged.
inline constexpr int64_t maxVectorsInFlight = 24;
/// Those that it may hold while it multiplies.
inline constexpr int64_t maxVectorsCarried = 16;

/// What shared memory moves in a cycle, to and from all warps of an SM together, loads from global memory included.
inline constexpr double sharedBytesPerCycle = 128;

/// Workers (warps on a matrix unit, else threads) along m, n and k.
struct ThreadLayout {
  int64_t rows = 1, columns = 1, groups = 1;
  /// Whether four warps along m, a warpgroup, multiply together what lies in shared memory (wgmma).
  bool byWarpgroups = false;
  /// Whether results go through shared memory, where the sums of groups meet, and are dealt out along n to all threads.
  bool meets = false;
  /// Predicted time of one pass over k, in cycles, and of what follows the last one: the meeting of the groups and what
  /// threads do with their results.
  double passCycles = 0, resultCycles = 0;
  /// Of a pass of warpgroups, the cycles that keep other work from shared memory.
  double portCycles = 0;

  /// What a pass takes together with other work on operands, `cycles` long: warpgroups multiply beside it.
  double passBeside(double cycles) const {
    return byWarpgroups ? std::max(passCycles, portCycles + cycles) : passCycles + cycles;
  }
  int64_t perGroup() const { return rows * columns; }
  int64_t used() const { return perGroup() * groups; }
};

/// A tile of m x n sums, in `passes` over `k` staged elements. Those of its own `rows` are results, for each of which
/// `resultBytes` are read and written. Threads may hold the operand over k and n in registers, and operands may lie
/// where others left them or will find them, as no warpgroup reads them. There are `groups` groups, or as many as are
/// fastest where that is 0.
struct TileWork {
  int64_t rows, m, n, k, passes, resultBytes;
  bool holdsColumns = false, sharesOperands = false;
  int64_t groups = 0;
};

/// The threads of a CTA, and whether warpgroups can multiply.
struct CtaThreads {
  int64_t count;
  bool hasWarpgroups;
};

/// The fastest layout of a CTA's threads, or of their warps.
ThreadLayout chooseLayout(Multiplier multiplier, const TileWork &tile, const CtaThreads &threads);

/// Bytes of a staged element, whatever it is in global memory.
int64_t stagedBytes(Multiplier multiplier);

/// Bytes between the rows of a staged operand, which put what a warp reads together into different banks. Rows run
/// along k, or along m or n.
int64_t rowPadding(Multiplier multiplier, bool alongK);

/// Where the sums of a tile's groups of threads lie in shared memory, in bytes from the operands' start: behind the
/// operands where that is small, so that no thread waits for others to be done with them, else in their place.
inline int64_t sumsOffset(int64_t stageBytes, int64_t sumsBytes, int64_t numChunks) {
  constexpr int64_t small = 48 << 10;
  return numChunks == 1 && stageBytes + sumsBytes <= small ? stageBytes : 0;
}

} // namespace trainkernel

#endif
