//===- TileSizes.h - how large tiles are ------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_SCHEDULING_TILESIZES_H
#define TRAINKERNEL_LIB_SCHEDULING_TILESIZES_H

#include "lib/Scheduling/TargetTable.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace trainkernel {

using Sizes = llvm::SmallVector<int64_t>;

/// A contraction, as the tile planner sees it: batch dimensions, then m, n and k.
struct ContractionShape {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  /// Bytes in memory behind an element of each operand, since a prologue may read more or wider ones, and those that
  /// the epilogue reads and writes for an element of the result.
  int64_t aBytes = 4, bBytes = 4, resultBytes = 4;
  /// Instructions that the epilogue takes for an element of the result.
  int64_t resultWork = 1;
  /// What multiplies on a GPU.
  Multiplier multiplier = Multiplier::ThreadFma;
};

struct ContractionTile {
  int64_t m, n, k;
};

int64_t countTiles(const ContractionShape &shape, const ContractionTile &tile);

/// Time that one of `busy` processors takes for one tile, in microseconds.
double predictTileTime(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target,
                       int64_t busy);

/// The tile with the least predicted time where `processors` CTAs work on the product.
ContractionTile chooseContractionTile(const ContractionShape &shape, const TargetFacts &target, int64_t processors);

/// The fastest tile of `rows` whole rows of a product, or nothing where none fits.
std::optional<ContractionTile> chooseWholeRowTile(const ContractionShape &shape, int64_t rows,
                                                  const TargetFacts &target);

/// A tile of `shape` with about `elements` elements, filled from the last dimension.
Sizes chooseElementTile(llvm::ArrayRef<int64_t> shape, int64_t elements);

/// Tiles needed to cover `shape` with tiles of the leading `shape.size()` entries of `sizes`.
int64_t countTiles(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> sizes);

/// Outputs per tile of a reduction with `outputs` results of `reduced` elements each.
int64_t reductionOutputsPerTile(int64_t outputs, int64_t reduced, bool reducesContiguous, const TargetFacts &target);

} // namespace trainkernel

#endif
