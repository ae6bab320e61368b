//===- ElementEmitter.h - code for one element of a fused region -*- C++ -*-===//
//
// A fused region is evaluated from its results backwards: an element of a tensor is a load where the tensor is a
// region argument, the body of the op that defines it where it is computed, and the same element of another tensor
// at other coordinates where it is a view. Transposes, broadcasts and reshapes therefore cost index arithmetic and
// no memory. The same walk produces a vector of elements where one coordinate runs over lanes.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_CONVERSION_COMMON_ELEMENTEMITTER_H
#define TRAINKERNEL_LIB_CONVERSION_COMMON_ELEMENTEMITTER_H

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Conversion/Common/IndexMath.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::megakernel {

/// Emits straight-line code at the builder's insertion point. What was emitted is reused within one emitter, so an
/// emitter must not outlive the block that it emits into.
class ElementEmitter {
public:
  /// Buffers start at multiples of `alignment` bytes, or of their elements' size where that is more; entries of a ring
  /// at what `alignmentOfEntry` says, if that is less.
  ElementEmitter(OpBuilder &builder, TileOp tile, int64_t lanes, int64_t alignment = 16)
      : builder(builder), tile(tile), lanes(lanes), alignment(alignment) {}

  /// Uses `value` for the element of `tensor` that is being computed (a reduction's result). It has one element,
  /// or one per lane.
  void bind(Value tensor, Value value) { bound[tensor] = value; }

  /// The elements of `tensor` at `indices`: a scalar with one lane, else a vector. Null after reporting an error.
  Value emit(Value tensor, ArrayRef<LaneIndex> indices);

  /// Emits the loads that `emit` will need, as far as they do not hang on a reduction, so that they are on their way
  /// while something else is computed. Later `emit` calls with the same indices find them. Returns what was loaded.
  /// With `wants`, only from the region arguments for which that holds.
  using Wanted = llvm::function_ref<bool(BlockArgument)>;
  SmallVector<Value> preload(Value tensor, ArrayRef<LaneIndex> indices, Wanted wants = nullptr);

  /// Lets `emit` use what another emitter's `preload` of `tensor` loaded, maybe in another block, at indices that have
  /// the same values. Takes as many values from the front of `loaded` as that call returned.
  void useLoaded(Value tensor, ArrayRef<LaneIndex> indices, ArrayRef<Value> &loaded, Wanted wants = nullptr);

  /// The value that the body of `op` yields for result `result` at the loop indices, with `accumulator` as the
  /// output element. Null after reporting an error.
  Value emitBody(linalg::GenericOp op, ArrayRef<LaneIndex> loops, Value accumulator, unsigned result = 0);

  /// Reads from `buffer`: a scalar with one lane or where no coordinate moves, else a vector.
  Value load(Location loc, Value buffer, ArrayRef<LaneIndex> indices);

  /// Writes `value` (one element, or one per lane) to `buffer`.
  void store(Location loc, Value value, Value buffer, ArrayRef<LaneIndex> indices);

  /// A scalar repeated in every lane; a vector as it is.
  Value splat(Location loc, Value value);

private:
  using Place = SmallVector<std::pair<Value, int64_t>>;
  using Key = std::pair<Value, Place>;

  static Key keyOf(Value tensor, ArrayRef<LaneIndex> indices);
  Value findEmitted(const Key &key) const;
  void visitLoads(Value tensor, ArrayRef<LaneIndex> indices,
                  function_ref<void(Value argument, ArrayRef<LaneIndex>)> visit);

  Value emitUncached(Value tensor, ArrayRef<LaneIndex> indices);
  Value emitGeneric(linalg::GenericOp op, OpResult result, ArrayRef<LaneIndex> indices);
  Value emitConstant(arith::ConstantOp op, ArrayRef<LaneIndex> indices);
  Value emitView(Operation *op, ArrayRef<LaneIndex> indices);
  Value emitInsertSlice(tensor::InsertSliceOp op, ArrayRef<LaneIndex> indices);
  std::optional<SmallVector<LaneIndex>> insertedIndices(tensor::InsertSliceOp op, ArrayRef<LaneIndex> indices,
                                                        Value &inside);
  Value emitPerLane(Value tensor, ArrayRef<LaneIndex> indices);
  Value emitExtract(tensor::ExtractOp op, ArrayRef<LaneIndex> loops, const IRMapping &mapping);
  Value truthOf(Value byte);
  int64_t startOf(Value buffer);
  Value outsideConstant(Operation *user, Value value);
  Value cloneOp(Operation &op, IRMapping &mapping);
  std::optional<SmallVector<LaneIndex>> operandIndices(OpOperand &operand, ArrayRef<LaneIndex> indices);
  std::optional<SmallVector<LaneIndex>> viewIndices(Operation *view, ArrayRef<LaneIndex> indices);

  OpBuilder &builder;
  TileOp tile;
  int64_t lanes, alignment;
  DenseMap<Value, Value> bound;
  SmallVector<std::pair<Key, Value>> emitted;
  /// Where operands were read, so that the same question has the same answer: values that `emitted` is keyed by.
  struct OperandPlace {
    OpOperand *operand;
    Place at;
    std::optional<SmallVector<LaneIndex>> indices;
  };
  SmallVector<OperandPlace> operandPlaces;
};

/// The buffer type that holds `type` in memory: a bool is a byte.
MemRefType typeInMemory(MemRefType type);

/// Clones a reshape of a buffer to one of the memory that stands for it.
void cloneReshape(OpBuilder &builder, Operation &reshape, IRMapping &buffers);

} // namespace mlir::megakernel

#endif
