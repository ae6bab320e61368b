//===- TileSizes.cpp - how large tiles are --------------------------------===//

#include "lib/Scheduling/TileSizes.h"
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

// A chain of dependent chunks of k: load, multiply. The last load's latency is the epilogue's.
double trainkernel::predictTileTime(const ContractionShape &shape, const ContractionTile &tile,
                                    const TargetFacts &target) {
  double work = double(tile.m) * tile.n * tile.k;
  double multiply = work / (shape.onMatrixUnits ? target.matrixRate : target.scalarRate);
  if (shape.onMatrixUnits)
    multiply = std::max(multiply, tile.k / 16 * target.matrixStep);
  double bytes = double(tile.m + tile.n) * tile.k * shape.elementBytes;
  double chunk = target.loadLatency + bytes * target.timePerByte + multiply;
  return target.loadLatency + divideCeil(shape.k, tile.k) * chunk;
}

static int64_t sharedBytes(const ContractionShape &shape, const ContractionTile &tile) {
  int64_t bytes = shape.onMatrixUnits ? 2 : 4, padding = 16;
  return (tile.m + tile.n) * (tile.k * bytes + padding) + tile.k * 2 * padding;
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
    rows = columns = {16, 32, 64};
    for (int64_t depth = shape.onMatrixUnits ? 64 : 32; depth <= 512; depth *= 2)
      depths.push_back(std::min<int64_t>(depth, llvm::alignTo(shape.k, 16)));
  }
  ContractionTile best{rows.front(), columns.front(), depths.front()};
  double bestTime = std::numeric_limits<double>::infinity();
  for (int64_t m : rows)
    for (int64_t n : columns)
      for (int64_t k : depths) {
        ContractionTile tile{m, n, k};
        double time = divideCeil(countTiles(shape, tile), processors) * predictTileTime(shape, tile, target);
        if (time < bestTime && (isCpu || sharedBytes(shape, tile) <= target.sharedBytes)) {
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
