//===- CtaContext.h - what code of one CTA needs to know --------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_CTACONTEXT_H
#define TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_CTACONTEXT_H

#include "lib/Analysis/Chains.h"
#include "lib/Conversion/Common/TileDomain.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

#include <map>

namespace mlir::megakernel {

/// What threads hold of operands that are kept, for one product after the other: for each place in shared memory and
/// way to read it, the registers of each instruction in turn.
using HeldFragments = std::map<std::vector<int64_t>, SmallVector<SmallVector<Value>>>;

struct CtaContext {
  OpBuilder &builder;
  /// Indices of this thread in its CTA and of this CTA in the grid.
  Value thread, cta;
  int64_t threads, grid;
  /// Barrier state and arena in global memory; scratch of the CTA in shared memory (bytes).
  Value workspace, shared;
  /// Width of an index once it is lowered.
  unsigned indexBits;
  /// Runs what emits code that may be shared, see `SharedBodies::record`.
  std::function<LogicalResult(function_ref<LogicalResult()>)> record;
  /// While code of a chain is emitted: the CTAs that have its tiles, no others get here; and what is held.
  std::optional<TileCtas> chainCtas = std::nullopt;
  HeldFragments *held = nullptr;

  IndexMath math(Location loc) const { return IndexMath(builder, loc); }
  /// A typed view of the CTA's shared memory, `byteOffset` bytes in.
  Value sharedView(Location loc, ArrayRef<int64_t> shape, Type element, int64_t byteOffset) const;
  Value sharedView(Location loc, ArrayRef<int64_t> shape, Type element, Value byteOffset) const;
  /// Joins the threads of the CTA.
  void barrier(Location loc) const;
  /// Whether some of the CTAs that get here have no tile of `domain`.
  bool leavesOut(const TileDomain &domain) const { return domain.numTiles < grid && !isOwnTile(domain); }
  /// Whether each CTA that gets here has one tile of `domain`.
  bool isOwnTile(const TileDomain &domain) const { return chainCtas && ctasOf(domain, grid) == chainCtas; }
  /// Runs `body` for each tile of `domain` that is placed on this CTA. Where CTAs are left out, what `body` emits may
  /// be shared: then they do not call it in vain.
  LogicalResult forEachTile(const TileDomain &domain,
                            function_ref<LogicalResult(ArrayRef<LaneIndex> origin)> body) const;
  /// The number of this CTA's first tile of `domain`, of which there may be fewer.
  Value firstTileOf(const TileDomain &domain) const;
  /// Runs `body` for each of `count` items, dealt out to the threads of the CTA from thread `firstThread` on.
  LogicalResult forEachItem(Location loc, int64_t count, int64_t firstThread,
                            function_ref<LogicalResult(Value item)> body) const;
  /// Runs `body` where `condition` holds; always where it is null.
  LogicalResult when(Location loc, Value condition, function_ref<LogicalResult()> body) const;
  using Values = FailureOr<SmallVector<Value>>;
  /// The same for code that makes numbers or vectors of them; they are zero where `condition` does not hold.
  Values valuesWhen(Location loc, Value condition, function_ref<Values()> body) const;
  /// `forEachTile` where no CTA has more than one, for code that makes values.
  Values valuesOfTile(const TileDomain &domain, function_ref<Values(ArrayRef<LaneIndex> origin)> body) const;
};

/// Code of one tile op, in two parts.
class TileEmitter {
public:
  virtual ~TileEmitter() = default;
  /// What may run before the barrier ahead of the phase: nothing, or what needs only inputs that are prefetched, up to
  /// all but the writing of results. The CTA's threads have met, so that shared memory is free.
  /// Values that a thread keeps up to then take of the `registerBytes` that it has for them.
  virtual LogicalResult prefetch(int64_t &registerBytes) { return success(); }
  virtual LogicalResult run() = 0;
};

/// A tile op's shared memory starts at byte `sharedOffset`; with `isLastUse` nothing else uses it up to the next
/// barrier of the kernel.
std::unique_ptr<TileEmitter> createContraction(const CtaContext &context, TileDomain &domain, int64_t sharedOffset,
                                               bool isLastUse);
/// True where two pointwise ops of a phase have the same tiles on the same CTAs, and can be emitted together.
bool areAlike(const TileDomain &a, const TileDomain &b);
/// Emits pointwise ops that are alike.
LogicalResult emitPointwise(const CtaContext &context, ArrayRef<const TileDomain *> domains);
/// Starts to copy the tiles of an op that does nothing else; 16 bytes at once, beside other work. Each thread waits for
/// its own copies.
LogicalResult emitCopyOntoChip(const CtaContext &context, const TileDomain &domain);
void emitCopiesWait(const CtaContext &context, Location loc);
LogicalResult emitReduction(const CtaContext &context, TileDomain &domain, int64_t sharedOffset, bool isLastUse);
/// A barrier's two halves. What the arrival returns, of type `arrivalType` or null where that is null, is what the wait
/// needs of it.
Type arrivalType(const CtaContext &context, Scope scope);
Value emitArrival(const CtaContext &context, Location loc, Scope scope);
void emitWait(const CtaContext &context, Location loc, Scope scope, Value arrival);

/// Waits until all launches before this one on its stream have ended and what they wrote is visible; then lets the next
/// launch start its CTAs, which wait likewise.
void emitEarlierLaunchesWait(const CtaContext &context, Location loc);

/// Turns float32 divisions and square roots, which are to be rounded correctly, into code for usual operands and a
/// branch for others.
void computeExactly(ModuleOp module);

/// Rounds vectors of float32 to bfloat16 and back two by two, as the GPU does at its full rate.
void roundInPairs(ModuleOp module);

/// Absolute values of whole numbers of any width: the lowering of GPU modules has those of 32 bits alone.
void lowerAbsolutes(ModuleOp module);

/// An index of 32 bits at most, of which the compiler does not know that it is the same in all rounds of a loop.
/// Otherwise it computes all that follows from it ahead of the loop, for every phase, and has no registers left.
Value computeAgain(const CtaContext &context, Location loc, Value index);

/// Bytes at the start of the workspace that hold barrier state.
inline constexpr int64_t barrierStateBytes = 256;

} // namespace mlir::megakernel

#endif
