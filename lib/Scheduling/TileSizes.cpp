//===- TileSizes.cpp - how large tiles are --------------------------------===//

#include "lib/Scheduling/TileSizes.h"
#include "lib/Scheduling/ThreadLayout.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <limits>

using namespace trainkernel;
using llvm::divideCeil;

int64_t trainkernel::countTiles(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> sizes) {
  int64_t tiles = 1;
  for (auto [extent, size] : llvm::zip(shape, sizes))
    tiles *= divideCeil(extent, size);
  return tiles;
}

int64_t trainkernel::countTiles(const ContractionShape &shape, const ContractionTile &tile) {
  return shape.batch * divideCeil(shape.m, tile.m) * divideCeil(shape.n, tile.n);
}

// Of all threads of an SM together.
static constexpr double instructionsPerCycle = 128;

static int64_t chunksOf(const ContractionShape &shape, const ContractionTile &tile) {
  return divideCeil(shape.k, tile.k);
}

static ThreadLayout layoutOf(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target) {
  return chooseLayout(shape.multiplier, tile.m, tile.n, tile.k, chunksOf(shape, tile), target.threads);
}

// Vectors of 16 bytes that each thread loads for a chunk.
static int64_t vectorsPerThread(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target) {
  return divideCeil(tile.m * tile.k * shape.aBytes / 16, target.threads) +
         divideCeil(tile.n * tile.k * shape.bBytes / 16, target.threads);
}

static bool isPipelined(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target) {
  return chunksOf(shape, tile) > 1 && vectorsPerThread(shape, tile, target) <= maxVectorsInFlight;
}

// Loads and products of all chunks, from the first load to the last product.
static double predictChunks(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target,
                            double perByte, double multiply) {
  int64_t chunks = chunksOf(shape, tile);
  double loaded = (double(tile.m) * shape.aBytes + double(tile.n) * shape.bBytes) * tile.k;
  double transfer = loaded * perByte;
  // What comes in also passes through the path to shared memory, which fragments are read by.
  double passing = (loaded + double(tile.m + tile.n) * tile.k * stagedBytes(shape.multiplier)) / sharedBytesPerCycle;
  double working = passing / target.clock + multiply + 2 * target.ctaBarrier;
  if (!isPipelined(shape, tile, target)) {
    int64_t batches = divideCeil(vectorsPerThread(shape, tile, target), maxVectorsInFlight);
    return chunks * (batches * target.loadLatency + transfer + multiply + 2 * target.ctaBarrier);
  }
  // One chunk is on its way at any time, so none takes less than the latency.
  double steady = std::max({transfer, target.loadLatency, working});
  return target.loadLatency + transfer + (chunks - 1) * steady + multiply + 2 * target.ctaBarrier;
}

double trainkernel::predictTileTime(const ContractionShape &shape, const ContractionTile &tile,
                                    const TargetFacts &target, int64_t busy) {
  double perByte = std::max(target.timePerByte, busy * target.timePerByteOfAll);
  double results = double(tile.m) * tile.n * shape.resultBytes * perByte;
  if (target.kind == TargetKind::Cpu) {
    double operands = (double(tile.m) * shape.aBytes + double(tile.n) * shape.bBytes) * shape.k * perByte;
    return target.loadLatency + chunksOf(shape, tile) * target.loadLatency + operands + results +
           double(tile.m) * tile.n * shape.k / target.multiplyRate;
  }
  ThreadLayout layout = layoutOf(shape, tile, target);
  double epilogue = double(tile.m) * tile.n * shape.resultWork / instructionsPerCycle / target.clock;
  return predictChunks(shape, tile, target, perByte, layout.passCycles / target.clock) +
         layout.resultCycles / target.clock + results + epilogue + target.loadLatency / 2;
}

static int64_t sharedBytes(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target) {
  int64_t bytes = stagedBytes(shape.multiplier), groups = layoutOf(shape, tile, target).groups;
  int64_t padding = rowPadding(shape.multiplier, /*alongK=*/true);
  int64_t paddingAcross = rowPadding(shape.multiplier, /*alongK=*/false);
  int64_t stage = (tile.m + tile.n) * (tile.k * bytes + padding) + tile.k * 2 * paddingAcross;
  return stage * (isPipelined(shape, tile, target) ? 2 : 1) + (groups == 1 ? 0 : groups * tile.m * (tile.n + 8) * 4);
}

// The most results of a tile. Threads that multiply tf32 parts keep their sums from before a chunk, too, in case that
// it has to be multiplied again, and would run out of registers.
static int64_t mostResults(Multiplier multiplier) { return multiplier == Multiplier::Tf32x3 ? 64 * 64 : 128 * 128; }

ContractionTile trainkernel::chooseContractionTile(const ContractionShape &shape, const TargetFacts &target,
                                                   int64_t processors) {
  bool isCpu = target.kind == TargetKind::Cpu;
  // On a CPU the tile of b is packed once per tile, so tiles are wide; k chunks keep both panels in L2.
  llvm::SmallVector<int64_t> rows, columns, depths;
  if (isCpu) {
    rows = {8, 16, 32, 64};
    columns = {32, 64};
    depths = {std::min<int64_t>(256, shape.k)};
  } else {
    rows = columns = {16, 32, 64, 128};
    for (int64_t depth = 128 / stagedBytes(shape.multiplier); depth <= 512; depth *= 2)
      depths.push_back(std::min<int64_t>(depth, llvm::alignTo(shape.k, 16)));
  }
  ContractionTile best{rows.front(), columns.front(), depths.front()};
  double bestTime = std::numeric_limits<double>::infinity();
  for (int64_t m : rows)
    for (int64_t n : columns)
      for (int64_t k : depths) {
        if (!isCpu && m * n > mostResults(shape.multiplier))
          continue;
        ContractionTile tile{m, n, k};
        int64_t tiles = countTiles(shape, tile), busy = std::min(tiles, processors);
        double time = divideCeil(tiles, processors) * predictTileTime(shape, tile, target, busy);
        if (time < bestTime && (isCpu || sharedBytes(shape, tile, target) <= target.sharedBytes)) {
          bestTime = time;
          best = tile;
        }
      }
  return best;
}

std::optional<ContractionTile> trainkernel::chooseWholeRowTile(const ContractionShape &shape, int64_t rows,
                                                               const TargetFacts &target) {
  std::optional<ContractionTile> best;
  double bestTime = std::numeric_limits<double>::infinity();
  int64_t columns = llvm::alignTo(shape.n, 16);
  if (rows % 16 != 0 || rows * columns > std::min<int64_t>(64 * 128, mostResults(shape.multiplier)))
    return std::nullopt;
  for (int64_t depth = 128 / stagedBytes(shape.multiplier); depth <= 512; depth *= 2) {
    ContractionTile tile{rows, columns, std::min<int64_t>(depth, llvm::alignTo(shape.k, 16))};
    double time = predictTileTime(shape, tile, target, countTiles(shape, tile));
    if (time < bestTime && sharedBytes(shape, tile, target) <= target.sharedBytes) {
      bestTime = time;
      best = tile;
    }
  }
  return best;
}

Sizes trainkernel::chooseElementTile(llvm::ArrayRef<int64_t> shape, int64_t elements) {
  Sizes sizes(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 0;) {
    sizes[i] = std::max<int64_t>(1, std::min(shape[i], elements));
    elements /= sizes[i];
    if (elements <= 1)
      break;
  }
  return sizes;
}

int64_t trainkernel::reductionOutputsPerTile(int64_t outputs, int64_t reduced, bool reducesContiguous,
                                             const TargetFacts &target) {
  if (target.kind == TargetKind::Cpu)
    return std::min<int64_t>(outputs, 64);
  // A warp's lanes lie along whatever is contiguous: along the outputs (32 of them), or along the reduction.
  int64_t perTile = reducesContiguous ? std::max<int64_t>(1, target.threads / std::min<int64_t>(reduced, 32)) : 32;
  return std::max<int64_t>(1, std::min(outputs, perTile));
}
