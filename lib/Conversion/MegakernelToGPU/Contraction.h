//===- Contraction.h - matrix products on a CTA -----------------*- C++ -*-===//
//
// Both operands of a tile are staged through shared memory, k chunk by k chunk; the prologue is computed on the way
// in. What multiplies them is a unit: MatrixUnit or SplitTf32 (mma.sync), WarpgroupUnit (wgmma), or ThreadFma (float32
// multiply-adds).
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_CONTRACTION_H
#define TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_CONTRACTION_H

#include "lib/Conversion/MegakernelToGPU/CtaContext.h"

namespace mlir::megakernel {

/// Accumulators in registers, and what to do with them.
class MultiplyUnit {
public:
  virtual ~MultiplyUnit() = default;
  /// Says what tile sizes the unit cannot take; nothing where it can.
  virtual std::string check() const = 0;
  virtual SmallVector<Value> initialAccumulators() = 0;
  /// Adds the product of the staged tiles, or of the part of k that this thread's group has.
  virtual SmallVector<Value> multiply(Value aTile, Value bTile, ValueRange accumulators) = 0;
  /// Whether it can do so beside other work: `multiply` is `finish` of what `start` returns. In between the tiles are
  /// read, and accumulators must be left alone.
  virtual bool isAsynchronous() const { return false; }
  virtual SmallVector<Value> start(Value aTile, Value bTile, ValueRange accumulators) { return accumulators; }
  virtual SmallVector<Value> finish(ValueRange accumulators) { return accumulators; }
  /// Ahead of the barrier between what a thread stores to the tiles and a product of them.
  virtual void publishTiles() {}
  /// Where each run of `lanes()` sums along n that this thread holds lies in the tile: (m, n). Runs that are known to
  /// lie beyond the tile's own rows are left out.
  virtual SmallVector<std::pair<Value, Value>> resultPlaces() = 0;
  /// The values of run `index` of `resultPlaces`.
  virtual Value resultValues(ValueRange accumulators, size_t index) = 0;
  /// Holds where this thread has the results of run `index`; null where every thread has.
  virtual Value hasResults(size_t index) { return nullptr; }
  /// Runs of each thread, where they can be asked for by a number that is known when the kernel runs; 0 where not.
  virtual int64_t numRuns() const { return 0; }
  virtual std::pair<Value, Value> placeOf(Value run) { return {}; }
  virtual Value valuesOf(Value run) { return nullptr; }
  virtual Value hasRun(Value run) { return nullptr; }
  /// The part of k that this thread multiplies.
  virtual Value group() = 0;
  /// After the last product, with all threads: makes the results available.
  virtual LogicalResult meet(ValueRange accumulators) { return success(); }
  virtual int64_t lanes() const = 0;
  /// How many products one addition to an accumulator takes in.
  virtual int64_t depth() const = 0;
};

/// Adds up what the groups of threads have in their accumulators and deals the sums out to all threads. Its
/// `initialAccumulators` and `multiply` are those of the unit.
std::unique_ptr<MultiplyUnit> createPartialSums(const CtaContext &context, const ContractionPlan &plan,
                                                std::unique_ptr<MultiplyUnit> unit);
std::unique_ptr<MultiplyUnit> createMatrixUnit(const CtaContext &context, const ContractionPlan &plan);
std::unique_ptr<MultiplyUnit> createWarpgroupUnit(const CtaContext &context, const ContractionPlan &plan);
std::unique_ptr<MultiplyUnit> createSplitTf32(const CtaContext &context, const ContractionPlan &plan);
std::unique_ptr<MultiplyUnit> createThreadFma(const CtaContext &context, const ContractionPlan &plan);

/// Brings one operand's tile into shared memory, 16 bytes of global memory an item, dealt out to the threads. Loads and
/// stores are apart, so that other work can stand between them.
class Stager {
public:
  Stager(const CtaContext &context, TileDomain &domain, const ContractionPlan &plan, OpOperand *operand,
         const SharedTile &tile);

  /// Items that each thread brings in.
  int64_t itemsPerThread() const;
  /// Loads of 16 bytes that an item takes.
  int64_t vectorsPerItem() const;
  /// Loads what item number `first` (a value, or null for 0) + `offset` of this thread is computed from, in the tile at
  /// the loop indices `base`.
  SmallVector<Value> load(ArrayRef<LaneIndex> base, Value first, int64_t offset);
  /// Computes that item from the front of `loaded`, which it takes away, and writes it to `memory`.
  LogicalResult store(Value memory, ArrayRef<LaneIndex> base, Value first, int64_t offset, ArrayRef<Value> &loaded);

private:
  struct Item {
    /// Its place in the tile along the two loops, and in the operand.
    Value other, read;
    SmallVector<LaneIndex> indices;
    /// Null where every item is inside of the domain.
    Value isInside;
  };
  Value withinOwn(unsigned loop, Value local, int64_t count);
  Item itemAt(ArrayRef<LaneIndex> base, Value number, int64_t offset);
  SmallVector<LaneIndex> placeOf(const Item &item);
  Value widen(Value value);

  const CtaContext &context;
  TileDomain &domain;
  const ContractionPlan &plan;
  OpOperand *operand;
  const SharedTile &tile;
  OpBuilder &builder;
  Location loc;
  IndexMath math;
};

/// One operand, and where its tile goes.
struct StagedOperand {
  Stager *stager;
  Value memory;
};

/// Fills the operands' tiles with the elements at the loop indices `base` and following.
LogicalResult stageOperands(const CtaContext &context, Location loc, ArrayRef<StagedOperand> operands,
                            ArrayRef<LaneIndex> base);
/// The same in two steps.
SmallVector<Value> loadOperands(ArrayRef<StagedOperand> operands, ArrayRef<LaneIndex> base);
LogicalResult storeOperands(ArrayRef<StagedOperand> operands, ArrayRef<LaneIndex> base, ArrayRef<Value> loaded);
/// Stores what was loaded at `base` and loads at `nextBase`, item by item, so that the memory system never runs dry.
FailureOr<SmallVector<Value>> exchangeOperands(ArrayRef<StagedOperand> operands, ArrayRef<LaneIndex> base,
                                               ArrayRef<Value> loaded, ArrayRef<LaneIndex> nextBase);

/// The product of a tile, k chunk by k chunk.
class ChunkedProduct {
public:
  /// With `isAlone` nothing else uses the shared memory before the CTA's threads meet at a barrier of the kernel.
  ChunkedProduct(const CtaContext &context, TileDomain &domain, const ContractionPlan &plan, MultiplyUnit &unit,
                 bool isAlone);

  /// Brings in the first chunk of the operands that are there, ahead of `multiply`, where nothing replaces it.
  LogicalResult stageFirst(ArrayRef<LaneIndex> origin, bool isAThere, bool isBThere);
  /// The unit's accumulators after the last chunk of the tile at `origin`.
  FailureOr<SmallVector<Value>> multiply(ArrayRef<LaneIndex> origin, ValueRange initialSums);

private:
  /// The shared tiles of both operands.
  struct Tiles {
    Value a, b;
  };
  Tiles tilesOf(Value chunk);
  SmallVector<StagedOperand, 2> operandsIn(Tiles tiles, bool withA, bool withB);
  FailureOr<SmallVector<Value>> multiplyPipelined(ArrayRef<LaneIndex> origin);
  /// A product of a chunk, which may be under way, and the sums that it is added to.
  struct Product {
    Tiles tiles;
    SmallVector<Value> sums, totals;
    bool isStarted;
  };
  Product startProduct(Tiles tiles, ValueRange accumulators);
  SmallVector<Value> finishProduct(const Product &product);
  void meetStaged();
  SmallVector<LaneIndex> chunkStart(ArrayRef<LaneIndex> origin, Value chunk);

  const CtaContext &context;
  TileDomain &domain;
  const ContractionPlan &plan;
  MultiplyUnit &unit;
  bool isAlone;
  OpBuilder &builder;
  Location loc;
  IndexMath math;
  Stager aStager, bStager;
  /// What is in shared memory before `multiply`.
  bool aIsStaged, bIsStaged, hasPrefetched = false;
  SmallVector<Value> initial;
};

} // namespace mlir::megakernel

#endif
