//===- TileGeometry.h - how a tile op is cut --------------------*- C++ -*-===//
//
// What follows from a tile op's sizes alone, without generating code: its tiles, and for contractions the layout of
// the operands in shared memory.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_ANALYSIS_TILEGEOMETRY_H
#define TRAINKERNEL_LIB_ANALYSIS_TILEGEOMETRY_H

#include "dialects/Megakernel/FusedRegion.h"
#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Scheduling/ThreadLayout.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::megakernel {

/// The domain of a tile op and its cut into tiles.
struct TileGeometry {
  explicit TileGeometry(TileOp tile);

  TileOp tile;
  FusedRegion region;
  /// Tile sizes of the parallel and of the reduction dimensions.
  ArrayRef<int64_t> sizes, reductionSizes;
  /// Tiles along each parallel dimension, and in all.
  SmallVector<int64_t> tileCounts;
  int64_t numTiles = 1;

  ArrayRef<int64_t> shape() const { return region.parallelShape; }
  /// True where tiles reach past the domain in dimension `dim`.
  bool isPartial(size_t dim) const { return shape()[dim] % sizes[dim] != 0; }
};

/// The largest power of two, at most `limit`, that divides all of `values`.
int64_t commonPowerOfTwo(int64_t limit, ArrayRef<int64_t> values);

/// The roles of a contraction's loops. Within m, n and k the innermost loop is tiled; others go one by one.
struct ContractionLoops {
  explicit ContractionLoops(FusedRegion &region);
  SmallVector<unsigned> batch, m, n, k;
};

/// The input operands of a contraction: the one over loop `m` first.
std::pair<OpOperand *, OpOperand *> operandsOf(linalg::GenericOp op, unsigned m);

/// The loop of `op` along which input `operand` is contiguous in the memory that it is read from.
unsigned contiguousLoop(linalg::GenericOp op, OpOperand *operand);

/// A contraction's loops with their extents and tile sizes, whatever the target.
struct ContractionGeometry {
  explicit ContractionGeometry(const TileGeometry &geometry);

  int64_t extentOf(unsigned loop) const { return extents[loop]; }
  int64_t sizeOf(unsigned loop) const { return tileSizes[loop]; }

  linalg::GenericOp op;
  unsigned mLoop, nLoop, kLoop;
  SmallVector<int64_t> extents, tileSizes;
  /// a is the operand over m and k, b the one over k and n.
  OpOperand *aOperand, *bOperand;
  /// Chunks along each reduction loop, and in all.
  SmallVector<int64_t> chunkCounts;
  int64_t numChunks = 1;
};

/// An operand's tile in shared memory: rows of `inner` elements, `pitch` apart. For warpgroups it lies in panels of
/// `swizzle` bytes of each row, panel after panel, and in a panel row after row, 16 bytes in the place of others so
/// that neighbouring rows lie in different banks (the "swizzling modes" of the PTX manual).
struct SharedTile {
  /// The loops that the rows and the elements of a row run over.
  unsigned outerLoop, innerLoop;
  int64_t outer, inner, pitch;
  Type element;
  int64_t byteOffset = 0;
  /// 0 where rows lie `pitch` apart, else 32, 64 or 128.
  int64_t swizzle = 0;
  /// The loop along which global memory is read, `lanes` elements at once, and the other one.
  unsigned readLoop, otherLoop;
  int64_t lanes;
  /// Loads of 16 bytes that such a run takes.
  int64_t vectorsPerItem;

  int64_t bytes() const { return outer * pitch * elementBytes(); }
  int64_t elementBytes() const { return element.getIntOrFloatBitWidth() / 8; }
  /// Elements of a row in a panel.
  int64_t panelWidth() const { return swizzle / elementBytes(); }
  /// What the tile starts at a multiple of.
  int64_t alignment() const { return std::max<int64_t>(16, 8 * swizzle); }
  /// Runs of `lanes` elements.
  int64_t numItems() const { return outer * inner / lanes; }
  int64_t vectorsPerThread(int64_t threads) const { return llvm::divideCeil(numItems(), threads) * vectorsPerItem; }
};

/// What multiplies a contraction's operands on a GPU, as the step or the kernel around it declares.
trainkernel::Multiplier multiplierOf(linalg::GenericOp op);

/// A contraction tile on a GPU: which unit multiplies, how threads divide the work, and where the operands lie.
struct ContractionPlan : ContractionGeometry {
  ContractionPlan(const TileGeometry &geometry, int64_t threads);

  /// What the plan's shared memory starts at a multiple of.
  int64_t alignment() const { return std::max(a.alignment(), b.alignment()); }
  int64_t sharedBytes() const {
    return std::max<int64_t>(stageBytes * (isPipelined ? 2 : 1), sumsOffset() + sumsBytes());
  }
  /// All groups' sums, and where they start, from the start of the operands.
  int64_t sumsBytes() const { return llvm::alignTo(layout.groups * partialsBytes(), 16); }
  int64_t sumsOffset() const { return trainkernel::sumsOffset(stageBytes, sumsBytes(), numChunks); }
  /// True where a chunk of k is multiplied while the next one comes in: both operands have two tiles in shared memory,
  /// `stageBytes` apart, and what is on its way stands in registers.
  bool isPipelined;
  int64_t stageBytes;
  /// Bytes of one group's sums in shared memory, where they take the place of the operands; none where sums do not
  /// meet.
  int64_t partialsBytes() const { return layout.meets ? sizeOf(mLoop) * partialsPitch() * 4 : 0; }
  /// Elements from row to row; the padding puts the rows that a warp writes together into different banks.
  int64_t partialsPitch() const { return sizeOf(nLoop) + 8; }

  trainkernel::Multiplier multiplier;
  /// Rows of the tile. A matrix unit multiplies 8 or 16 at a time: `sizeOf(mLoop)` may be more, and what is beyond is
  /// thrown away.
  int64_t rows;
  /// How much of a loop is the tile's own.
  int64_t ownSizeOf(unsigned loop) const { return loop == mLoop ? rows : sizeOf(loop); }
  /// Where b is kept for later tile ops, beside the shared memory of this one, whether it is there already, and whether
  /// threads hold it; where a lies already. See `megakernel.tile`.
  std::optional<uint64_t> keptAt;
  bool reusesKept, isInRegisters;
  std::optional<uint64_t> rowsAt;
  /// Registers of 32 bits that a thread needs to hold its part of a narrow b.
  int64_t registersOfB() const { return sizeOf(nLoop) * sizeOf(kLoop) / (layout.columns * layout.groups) / (32 * 2); }
  trainkernel::ThreadLayout layout;
  SharedTile a, b;
  /// Where the tile op's shared memory starts.
  int64_t sharedOffset = 0;

private:
  void swizzle(SharedTile &tile) const;
};

/// Shared memory that a tile op needs on a GPU beside what it keeps, in bytes, and where it may start.
struct SharedNeed {
  int64_t bytes = 0, alignment = 16;
};
SharedNeed sharedNeedOf(const TileGeometry &geometry, int64_t threads);
inline int64_t sharedBytesOf(const TileGeometry &geometry, int64_t threads) {
  return sharedNeedOf(geometry, threads).bytes;
}

struct PhaseInMemory;

/// Where the shared memory of each tile op of a phase starts.
struct SharedLayout {
  /// Behind what stays in shared memory while the phase runs, the ops lie behind one another where that fits into
  /// `limit` bytes; else each has all of it, one after the other.
  SharedLayout(const PhaseInMemory &phase, int64_t threads, int64_t limit);

  SmallVector<int64_t> offsets;
  int64_t bytes = 0, alignment = 16;
  bool isDisjoint;
};

} // namespace mlir::megakernel

#endif
