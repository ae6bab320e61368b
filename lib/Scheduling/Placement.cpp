//===- Placement.cpp - which CTA touches what -----------------------------===//

#include "lib/Scheduling/Placement.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace trainkernel;
using llvm::divideCeil;

SyncScope Placement::join(int64_t slot, int64_t other) const {
  if (isGridUnknown)
    return slot == other ? SyncScope::Cta : SyncScope::Grid;
  slot %= grid;
  other %= grid;
  if (slot == other)
    return SyncScope::Cta;
  return slot / cluster == other / cluster ? SyncScope::Cluster : SyncScope::Grid;
}

SyncScope Placement::joinAll() const {
  if (isGridUnknown)
    return SyncScope::Grid;
  return grid == 1 ? SyncScope::Cta : grid == cluster ? SyncScope::Cluster : SyncScope::Grid;
}

// Appends the coordinates in `extents` of the row-major positions from `first` to `last`.
static void delinearize(int64_t first, int64_t last, llvm::ArrayRef<int64_t> extents, Box &box) {
  int64_t inner = 1;
  for (int64_t extent : extents)
    inner *= extent;
  bool isWhole = false;
  for (int64_t extent : extents) {
    inner /= extent;
    if (isWhole) {
      box.push_back({0, extent - 1});
      continue;
    }
    box.push_back({first / inner, last / inner});
    isWhole = first / inner != last / inner;
    first %= inner;
    last %= inner;
  }
}

Box trainkernel::reshapeBox(const Box &box, llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to) {
  if (from == to)
    return box;
  Box result;
  size_t i = 0, j = 0;
  // Dimensions fall into groups of equal numbers of elements, within which coordinates count row-major.
  while (i < from.size() || j < to.size()) {
    int64_t sizeFrom = 1, sizeTo = 1, first = 0, last = 0;
    size_t begin = j;
    do {
      if (i < from.size() && (sizeFrom <= sizeTo || j == to.size())) {
        first = first * from[i] + box[i].first;
        last = last * from[i] + box[i].last;
        sizeFrom *= from[i++];
      } else {
        sizeTo *= to[j++];
      }
    } while (sizeFrom != sizeTo);
    delinearize(first, last, to.slice(begin, j - begin), result);
  }
  return result;
}

Box trainkernel::boxOfTile(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> tileSizes, int64_t tile) {
  Box box(shape.size());
  for (size_t dim = shape.size(); dim-- > 0;) {
    int64_t count = divideCeil(shape[dim], tileSizes[dim]), first = tile % count * tileSizes[dim];
    box[dim] = {first, std::min(first + tileSizes[dim], shape[dim]) - 1};
    tile /= count;
  }
  return box;
}

// Calls `visit` with the number of each tile that meets `box`, until it returns false.
static bool forEachTileIn(const Footprint &write, const Box &box, size_t dim, int64_t number,
                          llvm::function_ref<bool(int64_t)> visit) {
  if (dim == box.size())
    return visit(number);
  int64_t size = write.tileSizes[dim], count = divideCeil(write.shape[dim], size);
  for (int64_t i = box[dim].first / size; i <= box[dim].last / size; ++i)
    if (!forEachTileIn(write, box, dim + 1, number * count + i, visit))
      return false;
  return true;
}

SyncScope trainkernel::scopeBetween(const Footprint &write, const Footprint &other, const Placement &placement) {
  const SyncScope all = placement.joinAll();
  if (all == SyncScope::Cta)
    return all;
  SyncScope needed = SyncScope::None;
  for (int64_t tile = 0; tile < other.numTiles && needed != all; ++tile)
    for (const Box &box : other.boxesOf(tile))
      forEachTileIn(write, reshapeBox(box, other.shape, write.shape), 0, 0, [&](int64_t writer) {
        needed = std::max(needed, placement.join(write.firstCta + writer, other.firstCta + tile));
        return needed != all;
      });
  return needed;
}
