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

// Of all threads of an SM together.
static constexpr double instructionsPerCycle = 128;

static ThreadLayout layoutOf(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target) {
  return shape.onMatrixUnits ? chooseWarpLayout(tile.m, tile.n, tile.k, target.threads / 32)
                             : chooseThreadLayout(tile.m, tile.n, tile.k, target.threads);
}

// Chunks of k follow each other: load, multiply.
double trainkernel::predictTileTime(const ContractionShape &shape, const ContractionTile &tile,
                                    const TargetFacts &target, int64_t busy) {
  double perByte = std::max(target.timePerByte, busy * target.timePerByteOfAll);
  double operands = (double(tile.m) * shape.aBytes + double(tile.n) * shape.bBytes) * shape.k;
  double results = double(tile.m) * tile.n * shape.resultBytes;
  double transfer = (operands + results) * perByte;
  int64_t chunks = divideCeil(shape.k, tile.k);
  if (target.kind == TargetKind::Cpu)
    return target.loadLatency + chunks * target.loadLatency + transfer +
           double(tile.m) * tile.n * shape.k / target.multiplyRate;
  int64_t vectors = (tile.m + tile.n) * tile.k * (shape.onMatrixUnits ? 2 : 4) / 16;
  int64_t batches = divideCeil(vectors, maxVectorsInFlight * target.threads);
  double multiply = layoutOf(shape, tile, target).cycles / target.clock;
  double epilogue = double(tile.m) * tile.n * shape.resultWork / instructionsPerCycle / target.clock;
  return chunks * (batches * target.loadLatency + multiply + 2 * target.ctaBarrier) + transfer + epilogue +
         target.loadLatency / 2;
}

static int64_t sharedBytes(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target) {
  int64_t bytes = shape.onMatrixUnits ? 2 : 4, padding = 16;
  int64_t groups = layoutOf(shape, tile, target).groups;
  return (tile.m + tile.n) * (tile.k * bytes + padding) + tile.k * 2 * padding +
         (groups == 1 ? 0 : groups * tile.m * (tile.n + 8) * 4);
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
    for (int64_t depth = shape.onMatrixUnits ? 64 : 32; depth <= 512; depth *= 2)
      depths.push_back(std::min<int64_t>(depth, llvm::alignTo(shape.k, 16)));
  }
  ContractionTile best{rows.front(), columns.front(), depths.front()};
  double bestTime = std::numeric_limits<double>::infinity();
  for (int64_t m : rows)
    for (int64_t n : columns)
      for (int64_t k : depths) {
        // Larger tiles spill, and nothing hides the time that a chunk takes to come in.
        if (!isCpu && m * n > 64 * 128)
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
  int64_t elementBytes = shape.onMatrixUnits ? 2 : 4, perBatch = maxVectorsInFlight * target.threads;
  auto batches = [&](int64_t rows) { return divideCeil(rows * tile.k * elementBytes / 16, perBatch); };
  ContractionShape without = shape;
  without.bBytes = 0;
  return predictTileTime(shape, tile, target, busy) - predictTileTime(without, tile, target, busy) +
         double(batches(tile.m + tile.n) - batches(tile.m)) * target.loadLatency;
}

static void planKept(const ContractionShape &shape, WholeRowTile &whole, const TargetFacts &target) {
  const ContractionTile &tile = whole.tile;
  int64_t elementBytes = shape.onMatrixUnits ? 2 : 4;
  // Either operand dimension may be the one whose rows are padded.
  whole.keptBytes = tile.n * tile.k * elementBytes + std::max(tile.n, tile.k) * 16;
  whole.ownBytes = std::max<int64_t>(0, sharedBytes(shape, tile, target) - tile.n * tile.k * elementBytes);
}

std::optional<WholeRowTile> trainkernel::chooseWholeRowTile(const ContractionShape &shape, int64_t rows, bool mayKeep,
                                                            const TargetFacts &target) {
  std::optional<WholeRowTile> best;
  int64_t columns = llvm::alignTo(shape.n, 16), wholeDepth = llvm::alignTo(shape.k, 16);
  // A matrix unit multiplies 16 rows at a time, also where there are fewer.
  int64_t unitRows = llvm::alignTo(rows, 16);
  if ((rows != unitRows && !(shape.onMatrixUnits && rows % 8 == 0)) || unitRows * columns > 64 * 128)
    return std::nullopt;
  ContractionShape own = shape;
  own.aBytes = shape.aBytes * rows / unitRows;
  own.resultBytes = shape.resultBytes * rows / unitRows;
  own.resultWork = shape.resultWork * rows / unitRows;
  auto consider = [&](int64_t depth) {
    ContractionTile tile{unitRows, columns, std::min(depth, wholeDepth)};
    double time = predictTileTime(own, tile, target, shape.batch * divideCeil(shape.m, rows));
    if ((!best || time < best->time) && std::isfinite(time) && sharedBytes(shape, tile, target) <= target.sharedBytes)
      best = WholeRowTile{tile, time};
  };
  if (mayKeep)
    consider(wholeDepth);
  if (best) {
    planKept(shape, *best, target);
    return best;
  }
  for (int64_t depth = shape.onMatrixUnits ? 64 : 32; depth <= 512; depth *= 2)
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
