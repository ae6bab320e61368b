//===- Placement.h - which CTA touches what ---------------------*- C++ -*-===//
//
// An op runs as tiles, each on the CTA that its placement names. From the elements that each tile touches follows how
// many CTAs have to meet between a write and another access: none, the threads of one CTA, a cluster, or all.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_SCHEDULING_PLACEMENT_H
#define TRAINKERNEL_LIB_SCHEDULING_PLACEMENT_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <array>
#include <cstdint>
#include <functional>

namespace trainkernel {

/// Who has to meet, in ascending order.
enum class SyncScope : unsigned { None, Cta, Cluster, Grid };

/// Coordinates from `first` to `last`, both included.
struct Interval {
  int64_t first = 0, last = 0;
};

/// A range of coordinates in each dimension of a tensor.
using Box = llvm::SmallVector<Interval, 4>;

/// A box that holds the elements of `box` once the contiguous tensor that it lies in is seen in another shape.
Box reshapeBox(const Box &box, llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to);

/// Where the tiles of an op run: tile t in slot `first_cta + t`.
struct Placement {
  int64_t grid = 1, cluster = 1;
  /// Nothing is known of how many CTAs (workers) there are: only equal slots are the same one for certain.
  bool isGridUnknown = false;

  /// The least scope that joins the CTAs of two slots.
  SyncScope join(int64_t slot, int64_t other) const;
  /// The least scope that joins all CTAs.
  SyncScope joinAll() const;
};

/// What the tiles of an op touch of one memory.
struct Footprint {
  /// The shape over which boxes count.
  llvm::SmallVector<int64_t> shape;
  int64_t numTiles = 1, firstCta = 0;
  /// For what an op writes: the sizes of its tiles, which cover the shape, each element once, in row-major order.
  llvm::SmallVector<int64_t> tileSizes;
  /// Boxes that hold all that tile `t` touches.
  std::function<llvm::SmallVector<Box>(int64_t)> boxesOf;
};

/// The box of tile number `tile` of tiles that cover `shape`.
Box boxOfTile(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> tileSizes, int64_t tile);

/// The least scope of a barrier that orders each tile's accesses with what another op writes to the same memory.
SyncScope scopeBetween(const Footprint &write, const Footprint &other, const Placement &placement);

/// Barriers that an access comes after, by scope. A barrier counts for all scopes up to its own.
class Epochs {
public:
  void pass(SyncScope scope) {
    for (unsigned i = 0; i < static_cast<unsigned>(scope); ++i)
      ++passed[i];
  }
  /// True where a barrier of at least `scope` stands between this and `other`.
  bool differ(const Epochs &other, SyncScope scope) const {
    return scope == SyncScope::None || at(scope) != other.at(scope);
  }
  unsigned at(SyncScope scope) const { return passed[static_cast<unsigned>(scope) - 1]; }
  bool operator==(const Epochs &other) const { return passed == other.passed; }

private:
  std::array<unsigned, 3> passed = {};
};

} // namespace trainkernel

#endif
