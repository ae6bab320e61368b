//===- TileSizes.cpp - how large tiles are --------------------------------===//

#include "lib/Scheduling/TileSizes.h"
#include "lib/Scheduling/ThreadLayout.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <cmath>
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

static int64_t chunksOf(const ContractionShape &shape, const ContractionTile &tile) {
  return divideCeil(shape.k, tile.k);
}

static ThreadLayout layoutOf(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target) {
  TileWork work{tile.rows(), tile.m, tile.n, tile.k, chunksOf(shape, tile), shape.resultBytes};
  work.groups = shape.groups;
  return chooseLayout(shape.multiplier, work, {target.threads, target.hasWarpgroups});
}

bool trainkernel::isByWarpgroups(const ContractionShape &shape, const ContractionTile &tile,
                                 const TargetFacts &target) {
  return target.kind == TargetKind::Cuda && layoutOf(shape, tile, target).byWarpgroups;
}

int64_t trainkernel::groupsOf(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target) {
  return target.kind == TargetKind::Cpu ? 0 : layoutOf(shape, tile, target).groups;
}

// Vectors of 16 bytes that each thread loads for a chunk.
static int64_t vectorsPerThread(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target) {
  return divideCeil(tile.m * tile.k * shape.aBytes / 16, target.threads) +
         divideCeil(tile.n * tile.k * shape.bBytes / 16, target.threads);
}

static bool isPipelined(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target) {
  return chunksOf(shape, tile) > 1 && vectorsPerThread(shape, tile, target) <= maxVectorsCarried;
}

// Loads and products of all chunks, from the first load to the last product.
static TileCost predictChunks(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target,
                              double perByte, const ThreadLayout &layout) {
  int64_t chunks = chunksOf(shape, tile);
  double loaded = (double(tile.m) * shape.aBytes + double(tile.n) * shape.bBytes) * tile.k;
  double transfer = loaded * perByte;
  // What comes in also passes through the path to shared memory, which fragments are read by.
  double passing = (loaded + double(tile.m + tile.n) * tile.k * stagedBytes(shape.multiplier)) / sharedBytesPerCycle;
  double multiply = layout.passCycles / target.clock;
  double working = layout.passBeside(passing) / target.clock + 2 * target.ctaBarrier;
  if (!isPipelined(shape, tile, target)) {
    int64_t batches = divideCeil(vectorsPerThread(shape, tile, target), maxVectorsInFlight);
    double moving = std::max(transfer, passing / target.clock);
    return {chunks * batches * target.loadLatency, chunks * moving, chunks * (multiply + 2 * target.ctaBarrier), 0};
  }
  // One chunk is on its way at any time, so none takes less than the latency.
  double steady = std::max({transfer, target.loadLatency, working});
  TileCost cost{target.loadLatency, transfer, multiply + 2 * target.ctaBarrier, 0};
  // What takes longest hides the rest.
  double &longest = steady == working ? cost.multiply : steady == transfer ? cost.operands : cost.latency;
  longest += (chunks - 1) * steady;
  return cost;
}

TileCost trainkernel::predictTile(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target,
                                  int64_t busy) {
  double perByte = std::max(target.timePerByte, busy * target.timePerByteOfAll);
  double results = double(tile.rows()) * tile.n * shape.resultBytes * perByte;
  if (target.kind == TargetKind::Cpu) {
    double operands = (double(tile.m) * shape.aBytes + double(tile.n) * shape.bBytes) * shape.k * perByte;
    return {target.loadLatency + chunksOf(shape, tile) * target.loadLatency, operands,
            double(tile.m) * tile.n * shape.k / target.multiplyRate, results};
  }
  ThreadLayout layout = layoutOf(shape, tile, target);
  double epilogue = double(tile.rows()) * tile.n * shape.resultWork / instructionsPerCycle / target.clock;
  TileCost cost = predictChunks(shape, tile, target, perByte, layout);
  cost.latency += target.loadLatency / 2;
  cost.epilogue = layout.resultCycles / target.clock + results + epilogue;
  return cost;
}

// The most results of a tile. Threads that multiply tf32 parts keep their sums from before a chunk, too, in case that
// it has to be multiplied again, and would run out of registers.
static int64_t mostResults(Multiplier multiplier) { return multiplier == Multiplier::Tf32x3 ? 64 * 64 : 128 * 128; }

std::string trainkernel::findFault(const ContractionShape &shape, const ContractionTile &tile,
                                   const TargetFacts &target) {
  if (target.kind == TargetKind::Cpu) {
    // Both operands and the sums, in whole blocks of registers.
    int64_t m = llvm::alignTo(tile.m, 8), n = llvm::alignTo(tile.n, 32);
    int64_t bytes = ((m + n) * tile.k + m * n) * 4;
    return bytes <= target.sharedBytes
               ? ""
               : "which needs " + std::to_string(bytes) + " bytes of scratch, expected at most " +
                     std::to_string(target.sharedBytes);
  }
  // Threads halve m and n until each has its part.
  auto isPower = [](int64_t size) { return size >= 16 && llvm::isPowerOf2_64(size); };
  if (!isPower(tile.m) || !isPower(tile.n) || tile.k % 16 != 0)
    return "expected powers of two from 16 on along m and n, and a multiple of 16 along k";
  if (tile.m * tile.n > mostResults(shape.multiplier) || !std::isfinite(layoutOf(shape, tile, target).passCycles))
    return "expected fewer results, since those of a thread do not fit its registers";
  return "";
}

static int64_t partialsBytes(const ContractionTile &tile, const ThreadLayout &layout) {
  return layout.meets ? layout.groups * tile.m * (tile.n + 8) * 4 : 0;
}

static int64_t sharedBytes(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target) {
  int64_t bytes = stagedBytes(shape.multiplier), padding = rowPadding(shape.multiplier, /*alongK=*/true);
  int64_t paddingAcross = rowPadding(shape.multiplier, /*alongK=*/false);
  int64_t stage = (tile.m + tile.n) * (tile.k * bytes + padding) + tile.k * 2 * paddingAcross;
  int64_t sums = partialsBytes(tile, layoutOf(shape, tile, target));
  return std::max(stage * (isPipelined(shape, tile, target) ? 2 : 1),
                  sums + sumsOffset(llvm::alignTo(stage, 16), sums, divideCeil(shape.k, tile.k)));
}

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
  ContractionTile best{rows.front(), columns.front(), shape.depth > 0 ? shape.depth : depths.front()};
  double bestTime = std::numeric_limits<double>::infinity();
  for (int64_t m : rows)
    for (int64_t n : columns)
      for (int64_t k : depths) {
        if (!isCpu && m * n > mostResults(shape.multiplier))
          continue;
        if (shape.depth > 0 && k != shape.depth)
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

double trainkernel::predictOperandTime(const ContractionShape &shape, const ContractionTile &tile,
                                       const TargetFacts &target, int64_t busy) {
  if (target.kind == TargetKind::Cpu || tile.k < shape.k)
    return 0;
  ContractionShape without = shape;
  without.bBytes = 0;
  return predictTileTime(shape, tile, target, busy) - predictTileTime(without, tile, target, busy);
}

static void planKept(const ContractionShape &shape, WholeRowTile &whole, const TargetFacts &target) {
  const ContractionTile &tile = whole.tile;
  int64_t bytes = stagedBytes(shape.multiplier), padding = rowPadding(shape.multiplier, /*alongK=*/true);
  int64_t paddingAcross = rowPadding(shape.multiplier, /*alongK=*/false);
  // Either dimension of an operand may be the one whose rows are padded.
  whole.keptBytes = tile.n * tile.k * bytes + std::max(tile.n, tile.k) * padding;
  int64_t own = llvm::alignTo(tile.m * tile.k * bytes + std::max(tile.m * padding, tile.k * paddingAcross), 16);
  int64_t sums = partialsBytes(tile, layoutOf(shape, tile, target));
  whole.ownBytes = std::max(own, sums + sumsOffset(own, sums, /*numChunks=*/1));
}

std::optional<WholeRowTile> trainkernel::chooseWholeRowTile(const ContractionShape &shape, int64_t rows, bool mayKeep,
                                                            const TargetFacts &target) {
  std::optional<WholeRowTile> best;
  int64_t columns = llvm::alignTo(shape.n, 16), wholeDepth = llvm::alignTo(shape.k, 16);
  bool isMatrix = findMatrixStep(shape.multiplier).has_value();
  int64_t unitRows = isMatrix ? paddedRows(shape.multiplier, rows, columns) : llvm::alignTo(rows, 16);
  bool fitsUnit = rows == unitRows || (isMatrix && (rows < 8 || rows % 8 == 0));
  if (!fitsUnit || unitRows * columns > std::min<int64_t>(64 * 128, mostResults(shape.multiplier)))
    return std::nullopt;
  ContractionShape own = shape;
  own.aBytes = shape.aBytes * rows / unitRows;
  auto consider = [&](int64_t depth) {
    ContractionTile tile{unitRows, columns, std::min(depth, wholeDepth), rows};
    if (shape.depth > 0 && tile.k != shape.depth)
      return;
    TileCost cost = predictTile(own, tile, target, shape.batch * divideCeil(shape.m, rows));
    bool isFaster = std::isfinite(cost.total()) && (!best || cost.total() < best->cost.total());
    if (isFaster && sharedBytes(shape, tile, target) <= target.sharedBytes)
      best = WholeRowTile{tile, cost};
  };
  if (mayKeep)
    consider(wholeDepth);
  if (best) {
    planKept(shape, *best, target);
    return best;
  }
  for (int64_t depth = 128 / stagedBytes(shape.multiplier); depth <= 512; depth *= 2)
    consider(depth);
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
