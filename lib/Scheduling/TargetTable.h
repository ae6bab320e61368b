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

/// What multiplies the operands of a contraction on a GPU: float32 multiply-adds of single threads, matrix units that
/// take bfloat16 or float16, or matrix units that take float32 in two tf32 parts.
enum class Multiplier { ThreadFma, Narrow, Tf32x3 };

/// What a warp does with matrix units at one step along k, on blocks of 128 results.
struct MatrixStep {
  /// Elements along k that a step takes, and bytes of one of them in shared memory.
  int64_t depth, bytes;
  /// Cycles until a step's sums can be added to, and cycles of a scheduler's matrix unit for one block.
  double latency, unitCycles;
  /// Other instructions: for each element of an operand that a lane holds, and for each block.
  double elementInstructions, blockInstructions;
};

/// Nothing for what uses no matrix units.
std::optional<MatrixStep> findMatrixStep(Multiplier multiplier);

/// What the four warps of a warpgroup multiply with one instruction (wgmma): so many rows, elements along k, and
/// any 16 columns or more; and multiply-adds per cycle of all warpgroups together.
inline constexpr int64_t warpgroupThreads = 128, warpgroupRows = 64, warpgroupDepth = 16;
inline constexpr double warpgroupProductsPerCycle = 2048;

/// Results that a matrix unit computes at once.
struct MatrixBlock {
  int64_t rows, columns;
};

/// The block that a tile of `rows` rows, see `paddedRows`, consists of: 16 x 8 results, or the same turned, with the
/// operands in each other's place, where 16 rows would be too many.
MatrixBlock matrixBlockOf(int64_t rows);

/// The rows that are computed for a tile of `rows` x `columns` results: those beyond its own are thrown away.
int64_t paddedRows(Multiplier multiplier, int64_t rows, int64_t columns);

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
  /// The same where a CTA has them in shared memory.
  double sharedLatency;
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
  /// Whether warpgroups can multiply bfloat16 and float16.
  bool hasWarpgroups;
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
