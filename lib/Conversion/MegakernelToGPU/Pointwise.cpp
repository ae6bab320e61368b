//===- Pointwise.cpp - tiles without a reduction --------------------------===//

#include "lib/Conversion/MegakernelToGPU/CtaContext.h"

#include "lib/Analysis/Sources.h"
#include "lib/Scheduling/Placement.h"

#include <set>

using namespace mlir;
using namespace mlir::megakernel;

// Lanes per thread: up to 16 bytes of the widest input or output, as far as rows and tiles are multiples of it.
static int64_t chooseLanes(const TileDomain &domain) {
  if (domain.shape().empty())
    return 1;
  int64_t widest = 1;
  for (Value value : domain.region.yielded)
    widest = std::max({widest, bytesPerElement(value), widestSourceBytes(value)});
  return commonPowerOfTwo(16 / widest, {domain.shape().back(), domain.sizes.back()});
}

bool mlir::megakernel::areAlike(const TileDomain &a, const TileDomain &b) {
  TileOp first = a.tile, second = b.tile;
  return a.shape() == b.shape() && a.sizes == b.sizes && first.getFirstCta() == second.getFirstCta();
}

// Emits all results of all domains at `indices`. All loads come first, since what is computed may branch; and
// everything is read before anything is written, so that no op waits for what another one reads.
static LogicalResult emitAllResults(const CtaContext &context, ArrayRef<const TileDomain *> domains, int64_t lanes,
                                    ArrayRef<LaneIndex> indices) {
  SmallVector<std::unique_ptr<ElementEmitter>> emitters;
  SmallVector<SmallVector<Value>> values;
  for (const TileDomain *domain : domains) {
    emitters.push_back(std::make_unique<ElementEmitter>(context.builder, domain->tile, lanes));
    for (Value yielded : domain->region.yielded)
      emitters.back()->preload(yielded, indices);
  }
  for (auto [domain, emitter] : llvm::zip(domains, emitters)) {
    values.emplace_back();
    for (Value yielded : domain->region.yielded) {
      values.back().push_back(emitter->emit(yielded, indices));
      if (!values.back().back())
        return failure();
    }
  }
  for (auto [domain, emitter, own] : llvm::zip(domains, emitters, values)) {
    TileOp tile = domain->tile;
    for (auto [value, output] : llvm::zip(own, tile.getOutputs()))
      emitter->store(tile.getLoc(), value, output, indices);
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Pieces
//===----------------------------------------------------------------------===//

// Where tensors meet that `tensor` is put together from, by dimension. Each of them is computed on its own, not all of
// them for each element.
static void findCuts(Value tensor, MutableArrayRef<std::set<int64_t>> cuts) {
  if (auto insert = tensor.getDefiningOp<tensor::InsertSliceOp>()) {
    for (auto [dim, cut] : llvm::enumerate(cuts)) {
      int64_t first = insert.getStaticOffset(dim), size = insert.getStaticSize(dim);
      if (insert.getStaticStride(dim) == 1 && size < insert.getDestType().getDimSize(dim))
        cut.insert({first, first + size});
    }
    return findCuts(insert.getDest(), cuts);
  }
  auto generic = tensor.getDefiningOp<linalg::GenericOp>();
  if (!generic)
    return;
  AffineMap result =
      generic.getMatchingIndexingMap(generic.getDpsInitOperand(cast<OpResult>(tensor).getResultNumber()));
  for (OpOperand *operand : generic.getDpsInputOperands())
    if (generic.getMatchingIndexingMap(operand) == result)
      findCuts(operand->get(), cuts);
}

// The boxes of a tile that ops are emitted for one by one: cut where the tile has a whole dimension.
static SmallVector<trainkernel::Box> piecesOf(ArrayRef<const TileDomain *> domains) {
  constexpr size_t mostPieces = 8;
  const TileDomain &domain = *domains.front();
  SmallVector<std::set<int64_t>> cuts(domain.sizes.size());
  for (const TileDomain *each : domains)
    for (Value yielded : each->region.yielded)
      findCuts(yielded, cuts);
  SmallVector<trainkernel::Box> pieces(1);
  for (auto [dim, size] : llvm::enumerate(domain.sizes)) {
    SmallVector<trainkernel::Interval> intervals;
    cuts[dim].insert({0, size});
    bool isCut = size == domain.shape()[dim] && (cuts[dim].size() - 1) * pieces.size() <= mostPieces;
    for (auto cut = cuts[dim].begin(); isCut && std::next(cut) != cuts[dim].end(); ++cut)
      intervals.push_back({*cut, *std::next(cut) - 1});
    if (!isCut)
      intervals.push_back({0, size - 1});
    SmallVector<trainkernel::Box> finer;
    for (const trainkernel::Box &piece : pieces)
      for (trainkernel::Interval interval : intervals) {
        finer.push_back(piece);
        finer.back().push_back(interval);
      }
    pieces = std::move(finer);
  }
  return pieces;
}

namespace {
/// Emits pointwise ops that are alike.
class PointwiseEmitter {
public:
  PointwiseEmitter(const CtaContext &context, ArrayRef<const TileDomain *> domains)
      : context(context), domains(domains), domain(*domains.front()), loc(TileOp(domain.tile).getLoc()),
        math(context.math(loc)), pieces(piecesOf(domains)) {
    lanes = 16;
    for (const TileDomain *each : domains)
      lanes = std::min(lanes, chooseLanes(*each));
    for (const trainkernel::Box &piece : pieces)
      if (!piece.empty())
        lanes = commonPowerOfTwo(lanes, {piece.back().first, piece.back().last + 1});
    // All threads have something to do, where there is enough.
    while (lanes > 1 && llvm::product_of(domain.sizes) / lanes < context.threads)
      lanes /= 2;
  }

  // Different warps take different pieces, so that all of them have some.
  LogicalResult run() {
    return context.forEachTile(domain, [&](ArrayRef<LaneIndex> origin) {
      int64_t firstThread = 0;
      for (const trainkernel::Box &piece : pieces) {
        SmallVector<int64_t> extents;
        for (trainkernel::Interval interval : piece)
          extents.push_back(interval.last - interval.first + 1);
        if (!extents.empty())
          extents.back() /= lanes;
        int64_t items = llvm::product_of(extents);
        LogicalResult emitted = context.forEachItem(loc, items, firstThread, [&](Value item) {
          return emitItem(origin, piece, math.delinearize(item, extents));
        });
        if (failed(emitted))
          return failure();
        firstThread = llvm::alignTo(firstThread + items, 32);
      }
      return success();
    });
  }

private:
  LogicalResult emitItem(ArrayRef<LaneIndex> origin, const trainkernel::Box &piece, ArrayRef<Value> local) {
    SmallVector<LaneIndex> indices;
    for (auto [dim, start] : llvm::enumerate(origin)) {
      bool isLast = dim + 1 == origin.size(), isWhole = domain.sizes[dim] == domain.shape()[dim];
      Value step = math.add(isLast ? math.mul(local[dim], lanes) : local[dim], piece[dim].first);
      LaneIndex index{isWhole ? step : math.add(start.base, step), isLast && lanes > 1 ? 1 : 0, isLast ? lanes : 1};
      if (isWhole)
        std::tie(index.first, index.last) = std::pair(piece[dim].first, piece[dim].last);
      indices.push_back(index);
    }
    return context.when(loc, domain.inBounds(math, indices),
                        [&] { return emitAllResults(context, domains, lanes, indices); });
  }

  const CtaContext &context;
  ArrayRef<const TileDomain *> domains;
  const TileDomain &domain;
  Location loc;
  IndexMath math;
  SmallVector<trainkernel::Box> pieces;
  int64_t lanes;
};
} // namespace

LogicalResult mlir::megakernel::emitPointwise(const CtaContext &context, ArrayRef<const TileDomain *> domains) {
  return PointwiseEmitter(context, domains).run();
}
