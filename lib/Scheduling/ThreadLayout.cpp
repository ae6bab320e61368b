//===- ThreadLayout.cpp - how threads divide a contraction tile -----------===//

#include "lib/Scheduling/ThreadLayout.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <limits>

using namespace trainkernel;

// A barrier of the CTA and a round trip to shared memory.
static constexpr double meetingCycles = 90;
static constexpr int64_t schedulers = 4;

// Each group writes its sums and all of them are read once more.
static double meetingTime(const TileWork &tile, int64_t groups) {
  return meetingCycles + 2.0 * tile.rows * tile.n * 4 * groups / sharedBytesPerCycle;
}

// What threads do with the sums of `rows` rows that are dealt out to them: side operands, arithmetic, the store. An
// instruction for a warp touches as many lines of memory as it takes cycles: `linesPerResult` for each array of four
// bytes per result.
static double resultTime(const TileWork &tile, int64_t rows, int64_t threads, double linesPerResult) {
  constexpr double resultCycles = 6;
  double results = double(tile.rows) * tile.n;
  return resultCycles * llvm::divideCeil(rows * tile.n, threads) + results * tile.resultBytes / 4 * linesPerResult;
}

static double warpCycles(const MatrixStep &step, const TileWork &tile, const ThreadLayout &layout) {
  MatrixBlock block = matrixBlockOf(tile.m);
  int64_t rowBlocks = tile.m / block.rows / layout.rows, columnBlocks = tile.n / block.columns / layout.columns;
  double steps = double(tile.k) / step.depth / layout.groups;
  int64_t columnsRead = tile.holdsColumns ? 0 : columnBlocks * block.columns;
  int64_t elements = (rowBlocks * block.rows + columnsRead) * step.depth, blocks = rowBlocks * columnBlocks;
  double warpsPerScheduler = llvm::divideCeil(layout.used(), schedulers);
  // A scheduler issues one instruction a cycle beside what its matrix unit is busy with.
  double issue = step.elementInstructions * elements / 32 + step.blockInstructions * blocks;
  double multiply = std::max(step.latency, warpsPerScheduler * std::max(step.unitCycles * blocks, issue));
  double fragments = elements * step.bytes * layout.used() / sharedBytesPerCycle;
  // With one warp per scheduler nothing runs while its fragments are read.
  constexpr double fragmentLatency = 40;
  return 40 + steps * (std::max(multiply, fragments) + fragmentLatency / warpsPerScheduler);
}

static double threadCycles(const TileWork &tile, const ThreadLayout &layout) {
  int64_t perThreadM = tile.m / layout.rows, perThreadN = tile.n / layout.columns;
  double steps = double(tile.k) / layout.groups;
  double warpsPerScheduler = llvm::divideCeil(layout.used(), 32 * schedulers);
  double multiply = std::max(4.0, warpsPerScheduler * perThreadM * perThreadN);
  // A warp's load takes a cycle for each 128 bytes that its threads want, repeats included for the wider operand.
  double loads =
      llvm::divideCeil(layout.used(), 32) * (llvm::divideCeil(perThreadM, 4) + llvm::divideCeil(perThreadN, 4)) * 2;
  return 40 + steps * std::max(multiply, loads);
}

namespace {
/// What workers divide: units of m, n and k, each worker of `threads` threads. A worker's own results lie on
/// `linesPerResult` lines of memory each.
struct Work {
  int64_t rowUnits, columnUnits, depthUnits, workers, maxPerWorker, threads;
  double linesPerResult;
};
} // namespace

// With sixteen bytes a thread, one after the other.
static constexpr double denseLines = 1.0 / 32;

static void finishLayout(ThreadLayout &layout, const Work &work, const TileWork &tile) {
  // Where sums lie as they were computed, threads have those of rows beyond the tile's own, too.
  double direct = resultTime(tile, tile.m, layout.used() * work.threads, work.linesPerResult);
  double met = resultTime(tile, tile.rows, work.workers * work.threads, denseLines) + meetingTime(tile, layout.groups);
  layout.meets = layout.groups > 1 || met < direct;
  layout.resultCycles = layout.meets ? met : direct;
}

static double timeOf(const TileWork &tile, const ThreadLayout &layout) {
  return tile.passes * layout.passCycles + layout.resultCycles;
}

template <typename Cycles> static ThreadLayout choose(const Work &work, const TileWork &tile, Cycles cyclesOf) {
  ThreadLayout best;
  // Where no layout fits, no code does.
  best.passCycles = std::numeric_limits<double>::infinity();
  double bestTime = std::numeric_limits<double>::infinity();
  for (int64_t rows = 1; rows <= work.workers; rows *= 2)
    for (int64_t columns = 1; rows * columns <= work.workers; columns *= 2)
      for (int64_t groups = 1; rows * columns * groups <= work.workers; groups *= 2) {
        if (work.rowUnits % rows != 0 || work.columnUnits % columns != 0 || work.depthUnits % groups != 0)
          continue;
        if (tile.groups > 0 && groups != tile.groups)
          continue;
        // What one worker holds must fit its registers.
        if (work.rowUnits / rows * (work.columnUnits / columns) > work.maxPerWorker)
          continue;
        ThreadLayout layout{rows, columns, groups};
        layout.passCycles = cyclesOf(tile, layout);
        finishLayout(layout, work, tile);
        double time = timeOf(tile, layout);
        if (time < bestTime) {
          best = layout;
          bestTime = time;
        }
      }
  return best;
}

// A warp's fragment has two neighbours in each of four lanes, in eight rows; a turned one has eight neighbours in two
// rows at once.
static double fragmentLines(const MatrixBlock &block) { return block.rows == 8 ? 2.0 / 16 : 8.0 / 64; }

static ThreadLayout chooseWarps(const MatrixStep &step, const TileWork &tile, int64_t threads) {
  auto cycles = [&](const TileWork &work, const ThreadLayout &layout) { return warpCycles(step, work, layout); };
  MatrixBlock block = matrixBlockOf(tile.m);
  int64_t steps = std::max<int64_t>(1, tile.k / step.depth);
  return choose({tile.m / block.rows, tile.n / block.columns, steps, threads / 32, /*maxPerWorker=*/16, /*threads=*/32,
                 fragmentLines(block)},
                tile, cycles);
}

// All warpgroups share the matrix units and the port of shared memory. Cycles of each for a pass.
static double multiplyCycles(const TileWork &tile) {
  return double(tile.m) * tile.n * tile.k / warpgroupProductsPerCycle;
}
static double portCycles(const TileWork &tile, const ThreadLayout &layout) {
  int64_t columns = tile.n / layout.columns, instructions = tile.m / warpgroupRows * layout.columns;
  return 2.0 * instructions * (warpgroupRows + columns) * tile.k / sharedBytesPerCycle;
}

static double warpgroupCycles(const TileWork &tile, const ThreadLayout &layout) {
  // Two barriers of another kind, and the first and the last instruction of each warpgroup.
  constexpr double startAndWait = 100;
  return startAndWait + std::max(multiplyCycles(tile), portCycles(tile, layout));
}

// Each warpgroup has its part: code for some of them alone would keep others from the barriers between.
static ThreadLayout chooseWarpgroups(const TileWork &tile, int64_t threads) {
  const int64_t warpgroups = threads / warpgroupThreads;
  auto cycles = [&](const TileWork &work, const ThreadLayout &layout) {
    return layout.used() == warpgroups ? warpgroupCycles(work, layout) : std::numeric_limits<double>::infinity();
  };
  ThreadLayout layout = choose({tile.m / warpgroupRows, tile.n / 16, tile.k / warpgroupDepth, warpgroups,
                                /*maxPerWorker=*/8, warpgroupThreads, fragmentLines({16, 8})},
                               tile, cycles);
  layout.portCycles = portCycles(tile, layout);
  layout.rows *= 4;
  layout.byWarpgroups = true;
  return layout;
}

// Of one chunk there is nothing to stage meanwhile. Where the order of additions is given, it is that of warps.
static bool suitsWarpgroups(Multiplier multiplier, const TileWork &tile, const CtaThreads &threads) {
  return multiplier == Multiplier::Narrow && tile.passes > 1 && tile.groups == 0 && threads.hasWarpgroups &&
         threads.count % warpgroupThreads == 0 && !tile.sharesOperands && tile.rows == tile.m &&
         tile.m % warpgroupRows == 0 && tile.n % 16 == 0 && tile.k % warpgroupDepth == 0;
}

ThreadLayout trainkernel::chooseLayout(Multiplier multiplier, const TileWork &tile, const CtaThreads &threads) {
  std::optional<MatrixStep> step = findMatrixStep(multiplier);
  if (!step)
    return choose({tile.m, tile.n, tile.k, threads.count, /*maxPerWorker=*/32, /*threads=*/1, denseLines}, tile,
                  threadCycles);
  ThreadLayout warps = chooseWarps(*step, tile, threads.count);
  if (!suitsWarpgroups(multiplier, tile, threads))
    return warps;
  ThreadLayout warpgroups = chooseWarpgroups(tile, threads.count);
  if (timeOf(tile, warps) <= timeOf(tile, warpgroups))
    return warps;
  // What a product takes longer than its passes say, however many there are, so that other tiles may be better: with
  // tiles of two passes that should have been faster by 0.2 us each, mlp_med was slower by 0.7.
  constexpr double fillAndDrain = 500;
  warpgroups.resultCycles += fillAndDrain;
  return warpgroups;
}

int64_t trainkernel::stagedBytes(Multiplier multiplier) {
  std::optional<MatrixStep> step = findMatrixStep(multiplier);
  return step ? step->bytes : 4;
}

int64_t trainkernel::rowPadding(Multiplier multiplier, bool alongK) {
  // 16 bytes from each of eight rows, or from each of four rows, one k each, the elements of eight lanes.
  return multiplier == Multiplier::Tf32x3 && !alongK ? 32 : 16;
}
