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
static double meetingTime(int64_t m, int64_t n, int64_t groups) {
  return groups == 1 ? 0 : meetingCycles + 2.0 * m * n * 4 * groups / sharedBytesPerCycle;
}

// What a thread does with each of its results: side operands, arithmetic, the store. Only groups share them out.
static double resultTime(int64_t m, int64_t n, int64_t threads) {
  constexpr double resultCycles = 6;
  return resultCycles * llvm::divideCeil(m * n, threads);
}

static double warpCycles(const MatrixStep &step, int64_t m, int64_t n, int64_t k, const ThreadLayout &layout) {
  int64_t rowBlocks = m / 16 / layout.rows, columnBlocks = n / 8 / layout.columns;
  double steps = double(k) / step.depth / layout.groups;
  int64_t elements = (rowBlocks * 16 + columnBlocks * 8) * step.depth, blocks = rowBlocks * columnBlocks;
  double warpsPerScheduler = llvm::divideCeil(layout.used(), schedulers);
  // A scheduler issues one instruction a cycle beside what its matrix unit is busy with.
  double issue = step.elementInstructions * elements / 32 + step.blockInstructions * blocks;
  double multiply = std::max(step.latency, warpsPerScheduler * std::max(step.unitCycles * blocks, issue));
  double fragments = elements * step.bytes * layout.used() / sharedBytesPerCycle;
  // With one warp per scheduler nothing runs while its fragments are read.
  constexpr double fragmentLatency = 40;
  return 40 + steps * (std::max(multiply, fragments) + fragmentLatency / warpsPerScheduler);
}

static double threadCycles(int64_t m, int64_t n, int64_t k, const ThreadLayout &layout) {
  int64_t perThreadM = m / layout.rows, perThreadN = n / layout.columns;
  double steps = double(k) / layout.groups;
  double warpsPerScheduler = llvm::divideCeil(layout.used(), 32 * schedulers);
  double multiply = std::max(4.0, warpsPerScheduler * perThreadM * perThreadN);
  // A warp's load takes a cycle for each 128 bytes that its threads want, repeats included for the wider operand.
  double loads =
      llvm::divideCeil(layout.used(), 32) * (llvm::divideCeil(perThreadM, 4) + llvm::divideCeil(perThreadN, 4)) * 2;
  return 40 + steps * std::max(multiply, loads);
}

namespace {
/// What workers divide: units of m, n and k, each worker of `threads` threads.
struct Work {
  int64_t rowUnits, columnUnits, depthUnits, workers, maxPerWorker, threads;
};
} // namespace

template <typename Cycles>
static ThreadLayout choose(const Work &work, int64_t m, int64_t n, int64_t k, int64_t passes, Cycles cyclesOf) {
  ThreadLayout best;
  double bestTime = std::numeric_limits<double>::infinity();
  for (int64_t rows = 1; rows <= work.workers; rows *= 2)
    for (int64_t columns = 1; rows * columns <= work.workers; columns *= 2)
      for (int64_t groups = 1; rows * columns * groups <= work.workers; groups *= 2) {
        if (work.rowUnits % rows != 0 || work.columnUnits % columns != 0 || work.depthUnits % groups != 0)
          continue;
        // What one worker holds must fit its registers.
        if (work.rowUnits / rows * (work.columnUnits / columns) > work.maxPerWorker)
          continue;
        ThreadLayout layout{rows, columns, groups};
        layout.passCycles = cyclesOf(m, n, k, layout);
        int64_t finishing = groups == 1 ? layout.used() : work.workers;
        layout.resultCycles = resultTime(m, n, finishing * work.threads) + meetingTime(m, n, groups);
        double time = passes * layout.passCycles + layout.resultCycles;
        if (time < bestTime) {
          best = layout;
          bestTime = time;
        }
      }
  return best;
}

ThreadLayout trainkernel::chooseLayout(Multiplier multiplier, int64_t m, int64_t n, int64_t k, int64_t passes,
                                       int64_t threads) {
  std::optional<MatrixStep> step = findMatrixStep(multiplier);
  if (!step)
    return choose({m, n, k, threads, /*maxPerWorker=*/32, /*threads=*/1}, m, n, k, passes, threadCycles);
  auto cycles = [&](int64_t m, int64_t n, int64_t k, const ThreadLayout &layout) {
    return warpCycles(*step, m, n, k, layout);
  };
  int64_t steps = std::max<int64_t>(1, k / step->depth);
  return choose({m / 16, n / 8, steps, threads / 32, /*maxPerWorker=*/16, /*threads=*/32}, m, n, k, passes, cycles);
}

int64_t trainkernel::stagedBytes(Multiplier multiplier) {
  std::optional<MatrixStep> step = findMatrixStep(multiplier);
  return step ? step->bytes : 4;
}

int64_t trainkernel::rowPadding(Multiplier multiplier, bool alongK) {
  // 16 bytes from each of eight rows, or from each of four rows, one k each, the elements of eight lanes.
  return multiplier == Multiplier::Tf32x3 && !alongK ? 32 : 16;
}
