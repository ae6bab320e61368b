//===- TileSizes.h - how large tiles are ------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_SCHEDULING_TILESIZES_H
#define TRAINKERNEL_LIB_SCHEDULING_TILESIZES_H

#include "lib/Scheduling/TargetTable.h"
#include "lib/Scheduling/TileCost.h"
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
  /// The order of additions: a tile's size along k, and the groups of threads that share it out; 0 where both are free.
  int64_t depth = 0, groups = 0;
};

struct ContractionTile {
  int64_t m, n, k;
  /// Rows of the tile's own, where fewer than `m`, the rows that are computed; else 0.
  int64_t ownRows = 0;

  int64_t rows() const { return ownRows ? ownRows : m; }
};

int64_t countTiles(const ContractionShape &shape, const ContractionTile &tile);

/// What one of `busy` processors spends on one tile.
TileCost predictTile(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target,
                     int64_t busy);

/// The sum of that.
inline double predictTileTime(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target,
                              int64_t busy) {
  return predictTile(shape, tile, target, busy).total();
}

/// Why code for a tile of these sizes cannot be made, or nothing. Shared memory is not looked at.
std::string findFault(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target);

/// The groups of threads that share out the k of a tile.
int64_t groupsOf(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target);

/// Whether warpgroups multiply a tile, whose additions have an order that no other unit has.
bool isByWarpgroups(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target);

/// The tile with the least predicted time where `processors` CTAs work on the product.
ContractionTile chooseContractionTile(const ContractionShape &shape, const TargetFacts &target, int64_t processors);

/// The part of a tile's time that bringing in the operand over n and k takes, where that is brought in at once.
double predictOperandTime(const ContractionShape &shape, const ContractionTile &tile, const TargetFacts &target,
                          int64_t busy);

/// A tile of whole rows, and what it means to keep the operand over n and k in shared memory; 0 where that is not
/// possible. See `OpPlan`.
struct WholeRowTile {
  ContractionTile tile;
  TileCost cost;
  int64_t keptBytes = 0, ownBytes = 0;
};

/// The fastest tile of `rows` whole rows of a product, or nothing where none fits. Where `mayKeep`, one that can keep
/// its operand goes first.
std::optional<WholeRowTile> chooseWholeRowTile(const ContractionShape &shape, int64_t rows, bool mayKeep,
                                               const TargetFacts &target);

/// A tile of `shape` with about `elements` elements, filled from the last dimension.
Sizes chooseElementTile(llvm::ArrayRef<int64_t> shape, int64_t elements);

/// Tiles needed to cover `shape` with tiles of the leading `shape.size()` entries of `sizes`.
int64_t countTiles(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> sizes);

/// Outputs per tile of a reduction with `outputs` results of `reduced` elements each.
int64_t reductionOutputsPerTile(int64_t outputs, int64_t reduced, bool reducesContiguous, const TargetFacts &target);

} // namespace trainkernel

#endif
