//===- FetchAhead.cpp - inputs that come on chip early --------------------===//

#include "lib/Transforms/FetchAhead/FetchAhead.h"

#include "dialects/Megakernel/FusedRegion.h"
#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Analysis/KernelAccesses.h"
#include "lib/Analysis/OnChip.h"
#include "lib/Analysis/SharedSpace.h"
#include "lib/Analysis/TileFootprint.h"
#include "lib/Scheduling/TargetTable.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKFETCHAHEAD
#include "lib/Transforms/FetchAhead/FetchAhead.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;
using namespace trainkernel;

// The arguments of a contraction's region that its operands are computed from.
static llvm::SmallBitVector argumentsOfOperands(TileOp tile) {
  FusedRegion region = FusedRegion::get(tile.getBody());
  llvm::SmallBitVector found(tile.getBody().getNumArguments());
  if (!region.isContraction())
    return found;
  SmallVector<Value> pending(region.reduction.getDpsInputs());
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    if (auto argument = dyn_cast<BlockArgument>(value))
      found.set(argument.getArgNumber());
    else
      llvm::append_range(pending, valuesRead(value.getDefiningOp()));
  }
  return found;
}

// Tile sizes over `shape` that hold `elements` in row-major order, or nothing.
static std::optional<SmallVector<int64_t>> sizesOfPart(ArrayRef<int64_t> shape, int64_t elements) {
  SmallVector<int64_t> sizes(shape.size(), 1);
  for (size_t dim = shape.size(); dim-- > 0;) {
    sizes[dim] = std::min(shape[dim], elements);
    if (shape[dim] % sizes[dim] != 0 || elements % sizes[dim] != 0)
      return std::nullopt;
    elements /= sizes[dim];
  }
  return elements == 1 ? std::optional(sizes) : std::nullopt;
}

// Whether the tiles of an op read the last element of an input. Behind the last one that a step reads of an argument, a
// view into other memory, there may be no memory to copy.
static bool readsLastElement(TileOp tile, unsigned index) {
  auto wholeOf = [](Value value) {
    return llvm::map_to_vector(cast<MemRefType>(value.getType()).getShape(),
                               [](int64_t extent) { return Interval{0, extent - 1}; });
  };
  Box last = wholeOf(tile.getInputs()[index]);
  return llvm::any_of(boxesRead(tile.getBody(), Box(wholeOf(tile.getOutputs().front())))[index], [&](const Box &box) {
    return llvm::all_of(llvm::zip_equal(box, last), [](auto pair) {
      auto [read, whole] = pair;
      return read.last == whole.last;
    });
  });
}

namespace {
struct FetchAheadPass : public megakernel::impl::TkFetchAheadBase<FetchAheadPass> {
  void runOnOperation() override {
    kernel = getOperation();
    // One pass may see several kernels.
    fetches.clear();
    footprints.clear();
    std::optional<TargetFacts> target = findTarget(kernel.getTarget().value_or(""));
    if (!target || target->kind != TargetKind::Cuda)
      return;
    SharedSpace room(kernel, target->sharedBytes);
    KernelAccesses accesses(kernel);
    space = &room;
    all = &accesses;
    // Since the last barrier of several CTAs.
    std::optional<Place> previous;
    unsigned epoch = 0;
    for (Operation &op : kernel.getBody().front()) {
      auto barrier = dyn_cast<BarrierOp>(op);
      epoch += barrier != nullptr;
      if (barrier && joinedBy(kernel, barrier.getScope()) != SyncScope::Cta)
        previous.reset();
      if (auto phase = dyn_cast<PhaseOp>(op)) {
        if (previous && previous->epoch < epoch)
          fetchFor(phase, *previous, epoch);
        previous = Place{phase, epoch};
      }
    }
    for (const Fetch &fetch : fetches)
      create(fetch);
    numFetched += fetches.size();
    kernel.setSharedBytes(sharedBytesOf(kernel, target->sharedBytes));
  }

private:
  /// A phase, and how many barriers stand before it.
  struct Place {
    PhaseOp phase;
    unsigned epoch;
  };

  /// A value that a tile op of `phase` copies, for inputs of later tile ops.
  struct Fetch {
    PhaseOp phase;
    Value value;
    Parts parts;
    SmallVector<int64_t> sizes;
    SharedRange range;
    SmallVector<std::pair<TileOp, unsigned>> inputs;
  };

  void fetchFor(PhaseOp phase, const Place &previous, unsigned epoch) {
    for (auto tile : phase.getBody().front().getOps<TileOp>()) {
      llvm::SmallBitVector ofOperands = argumentsOfOperands(tile);
      for (unsigned index = 0, e = tile.getInputs().size(); index < e; ++index)
        if (!ofOperands.test(index) && !extend(tile, index, epoch) && isThereBefore(tile, index, previous.phase))
          start(tile, index, previous, epoch);
    }
  }

  // Uses what was copied for the phase before or for another op of this one, unless it was written anew since.
  bool extend(TileOp tile, unsigned index, unsigned epoch) {
    for (auto [number, fetch] : llvm::enumerate(fetches)) {
      bool isNear = fetch.value == tile.getInputs()[index] && fetch.range.lastEpoch + 1 >= epoch;
      if (!isNear || !staysInParts(*footprintOf(tile, index), fetch.parts, kernel.getGrid()) ||
          !isThereBefore(tile, index, fetch.phase))
        continue;
      SharedRange old = *space->release(number);
      std::optional<SharedRange> longer = space->find(old.end - old.begin, old.firstEpoch, epoch);
      fetch.range = longer ? *longer : old;
      space->take(number, fetch.range);
      if (longer)
        fetch.inputs.emplace_back(tile, index);
      return longer.has_value();
    }
    return false;
  }

  // Whether nothing writes an input from the barrier ahead of `previous` on.
  bool isThereBefore(TileOp tile, unsigned index, PhaseOp previous) {
    const Access *own = llvm::find_if(
        all->accesses, [&](const Access &access) { return access.step == 0 && all->ops[access.op].op == tile; });
    Access read = own[index];
    const auto *before = llvm::find_if(
        all->ops, [&](const KernelAccesses::OpInStep &op) { return op.step == 0 && op.op->getParentOp() == previous; });
    if (before == all->ops.end())
      return false;
    read.epochs = before->epochs;
    auto copied = static_cast<unsigned>(before - all->ops.begin());
    Placement placement = placementOf(kernel);
    return llvm::none_of(all->accesses, [&](const Access &access) {
      // What comes behind the copy is not seen in it, whatever orders the two.
      bool isLater = access.op >= copied;
      if (!access.isWrite || access.op >= read.op || (!isLater && access.epochs.differ(read.epochs, SyncScope::Grid)))
        return false;
      SyncScope needed = scopeBetween(access, read, placement);
      return isLater ? needed != SyncScope::None : !access.epochs.differ(read.epochs, needed);
    });
  }

  void start(TileOp tile, unsigned index, const Place &place, unsigned epoch) {
    Value value = tile.getInputs()[index];
    auto type = cast<MemRefType>(value.getType());
    if (rootOfBuffer(value) != value || onChipBufferOf(value) || type.getRank() == 0)
      return;
    if (isa<BlockArgument>(value) && !readsLastElement(tile, index))
      return;
    std::optional<Parts> parts = partsByRow(*footprintOf(tile, index), kernel.getGrid());
    int64_t bytes = parts ? bytesOfBuffer(type) / parts->count : 0;
    std::optional<SmallVector<int64_t>> sizes =
        parts && bytes % 16 == 0 ? sizesOfPart(type.getShape(), parts->elements) : std::nullopt;
    std::optional<SharedRange> range = sizes ? space->find(bytes, place.epoch, epoch) : std::nullopt;
    if (!range)
      return;
    space->take(fetches.size(), *range);
    fetches.push_back({place.phase, value, *parts, *sizes, *range, {{tile, index}}});
  }

  const std::shared_ptr<const Footprint> &footprintOf(TileOp tile, unsigned index) {
    auto [known, isNew] = footprints.try_emplace(tile);
    if (isNew)
      known->second = footprintsOf(tile);
    return known->second.inputs[index];
  }

  void create(const Fetch &fetch) {
    OpBuilder builder(&kernel.getBody().front(), kernel.getBody().front().begin());
    Location loc = TileOp(fetch.inputs.front().first).getLoc();
    auto buffer = BufferOp::create(builder, loc, fetch.value.getType());
    placeOnChip(buffer, fetch.range.begin, fetch.parts);
    // First in its phase, so that it is under way while the others work.
    builder.setInsertionPointToStart(&PhaseOp(fetch.phase).getBody().front());
    auto copy = TileOp::create(builder, loc, fetch.value, buffer.getResult(), fetch.sizes);
    copy.setFirstCta(fetch.parts.firstCta);
    auto type = cast<MemRefType>(fetch.value.getType());
    Block *body =
        builder.createBlock(&copy.getBody(), {}, RankedTensorType::get(type.getShape(), type.getElementType()), loc);
    YieldOp::create(builder, loc, body->getArguments());
    for (auto [tile, index] : fetch.inputs)
      TileOp(tile).getInputsMutable().slice(index, 1).assign(buffer.getResult());
  }

  KernelOp kernel;
  SharedSpace *space;
  KernelAccesses *all;
  SmallVector<Fetch> fetches;
  DenseMap<Operation *, TileFootprints> footprints;
};
} // namespace
