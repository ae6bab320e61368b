//===- TargetTable.h - facts about targets ----------------------*- C++ -*-===//
//
// Every fact about a machine that a scheduling decision needs, one row per target. Times are in microseconds.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_SCHEDULING_TARGETTABLE_H
#define TRAINKERNEL_LIB_SCHEDULING_TARGETTABLE_H

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>
#include <string>

namespace trainkernel {

enum class TargetKind { Cuda, Cpu };

struct TargetFacts {
  llvm::StringRef name;
  TargetKind kind;
  /// Streaming multiprocessors, or the most workers that a step is cut for.
  int64_t processors;
  int64_t threads;
  /// Dynamic shared memory of one CTA, or scratch of one worker, in bytes.
  int64_t sharedBytes;
  /// The largest cluster of CTAs, 1 where there are none.
  int64_t maxCluster;
  /// Multiply-adds per microsecond of a CPU's core; on a GPU the layout of the threads decides.
  double multiplyRate;
  /// Cycles per microsecond.
  double clock;
  /// Time for one dependent round trip to where operands come from.
  double loadLatency;
  /// Time per byte of a tile's operands: of one processor, of one while few others read, and of all together, each byte
  /// counted.
  double timePerByte, timePerByteOfFew, timePerByteOfAll;
  /// A barrier by scope.
  double ctaBarrier, clusterBarrier, gridBarrier;
  /// What a barrier of several CTAs costs beside: the last one is late, and what others wrote comes from afar.
  double stragglers;
  /// Launching one CTA or one cluster, and launching a cooperative grid.
  double clusterLaunch, gridLaunch;
  /// Whether a launch can start its CTAs while the one before it runs out (griddepcontrol).
  bool overlapsLaunches;
};

/// Of all threads of an SM together.
inline constexpr double instructionsPerCycle = 128;

/// The row of a target: "cpu", or an architecture such as "sm_90a".
std::optional<TargetFacts> findTarget(llvm::StringRef name);
/// The most CTAs that run at once if only their threads limit them, or workers that the CPU's runtime starts at most.
int64_t mostCtas(const TargetFacts &target);
/// All target names, for messages.
std::string listTargets();

} // namespace trainkernel

#endif
