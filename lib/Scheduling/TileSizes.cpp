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

// Waves of tiles over the processors, each a chain of dependent chunks of k.
static double predictTime(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target) {
  int64_t tiles = shape.batch * divideCeil(shape.m, tile.m) * divideCeil(shape.n, tile.n);
  double waves = divideCeil(tiles, target.processors);
  double rate = shape.onMatrixUnits ? target.matrixRate : target.scalarRate;
  double bytes = double(tile.m + tile.n) * tile.k * shape.elementBytes;
  double chunk = target.loadLatency + bytes * target.timePerByte + double(tile.m) * tile.n * tile.k / rate;
  return waves * (target.loadLatency + divideCeil(shape.k, tile.k) * chunk);
}

ContractionTile trainkernel::chooseContractionTile(const ContractionShape &shape, const TargetFacts &target) {
  bool isCpu = target.kind == TargetKind::Cpu;
  // On a CPU the tile of b is packed once per tile, so tiles are wide; k chunks keep both panels in L2.
  llvm::SmallVector<int64_t> rows = isCpu ? llvm::SmallVector<int64_t>{8, 16, 32, 64}
                                          : llvm::SmallVector<int64_t>{16, 32, 64};
  llvm::SmallVector<int64_t> columns = isCpu ? llvm::SmallVector<int64_t>{32, 64}
                                             : llvm::SmallVector<int64_t>{16, 32, 64};
  int64_t maxK = isCpu ? 256 : shape.onMatrixUnits ? 64 : 32;
  int64_t k = std::min<int64_t>(maxK, llvm::alignTo(shape.k, isCpu ? 1 : 16));
  ContractionTile best{rows.front(), columns.front(), k};
  double bestTime = std::numeric_limits<double>::infinity();
  for (int64_t m : rows)
    for (int64_t n : columns) {
      ContractionTile tile{m, n, k};
      double time = predictTime(shape, tile, target);
      if (time < bestTime) {
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
