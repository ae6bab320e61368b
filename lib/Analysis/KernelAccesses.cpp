//===- KernelAccesses.cpp - what a kernel reads and writes ----------------===//

#include "lib/Analysis/KernelAccesses.h"

#include "dialects/Megakernel/FusedRegion.h"

using namespace mlir;
using namespace mlir::megakernel;
using trainkernel::Access;
using trainkernel::Footprint;
using trainkernel::MemoryRange;

int64_t mlir::megakernel::bytesOfBuffer(MemRefType type) {
  int64_t bits = type.getElementTypeBitWidth();
  return type.getNumElements() * std::max<int64_t>(1, bits / 8);
}

// Walks from a region argument to the yielded values; every step must keep the element.
static bool keepsElement(Value value, ArrayRef<int64_t> shape) {
  if (cast<RankedTensorType>(value.getType()).getShape() != shape)
    return false;
  for (OpOperand &use : value.getUses()) {
    if (isa<YieldOp>(use.getOwner()))
      continue;
    auto generic = dyn_cast<linalg::GenericOp>(use.getOwner());
    if (!generic || isReduction(generic) || !generic.getMatchingIndexingMap(&use).isIdentity())
      return false;
    for (OpOperand &init : generic.getDpsInitsMutable())
      if (!generic.getMatchingIndexingMap(&init).isIdentity())
        return false;
    for (Value result : generic.getResults())
      if (!keepsElement(result, shape))
        return false;
  }
  return true;
}

bool mlir::megakernel::readsOwnElementOnly(TileOp tile, unsigned index) {
  FusedRegion parts = FusedRegion::get(tile.getBody());
  return keepsElement(tile.getBody().getArgument(index), parts.parallelShape);
}

KernelAccesses::KernelAccesses(KernelOp kernel) : kernel(kernel) {
  arena = kernel.getNumArguments();
  addStep();
  RepeatOp repeat = kernel.getRepeat();
  if (!repeat)
    return;
  bool alternates =
      llvm::any_of(kernel.getBody().front().getOps<BufferOp>(), [](BufferOp buffer) { return buffer.getAlternates(); });
  unsigned numSteps = alternates ? 3 : 2;
  for (step = 1; step < numSteps; ++step) {
    pass(repeat.getScope());
    addStep();
  }
}

void KernelAccesses::addStep() {
  for (Operation &op : kernel.getBody().front()) {
    if (auto barrier = dyn_cast<BarrierOp>(op)) {
      pass(barrier.getScope());
    } else if (auto phase = dyn_cast<PhaseOp>(op)) {
      for (auto tile : phase.getBody().front().getOps<TileOp>())
        addTile(tile);
    } else if (auto commit = dyn_cast<CommitOp>(op)) {
      addCommit(commit);
    }
  }
}

// A CTA arrives once its own threads have met.
void KernelAccesses::pass(Scope scope) {
  earlyEpochs = epochs;
  earlyEpochs.pass(joinedBy(kernel, Scope::Cta));
  epochs.pass(joinedBy(kernel, scope));
}

void KernelAccesses::addTile(TileOp tile) {
  addOp(tile);
  auto [known, isNew] = footprints.try_emplace(tile);
  if (isNew)
    known->second = footprintsOf(tile);
  for (auto [index, input] : llvm::enumerate(tile.getInputs())) {
    const std::shared_ptr<const Footprint> &footprint = known->second.inputs[index];
    // What may be read early may also be read in its phase.
    if (tile.isPrefetched(index) && !(epochs == earlyEpochs)) {
      Access &early = add(input, /*isWrite=*/false, /*ownElementOnly=*/false);
      early.epochs = earlyEpochs;
      early.footprint = footprint;
    }
    add(input, /*isWrite=*/false, readsOwnElementOnly(tile, index)).footprint = footprint;
  }
  for (Value output : tile.getOutputs())
    add(output, /*isWrite=*/true, /*ownElementOnly=*/false).footprint = known->second.outputs;
}

void KernelAccesses::addCommit(CommitOp commit) {
  addOp(commit);
  add(commit.getSource(), /*isWrite=*/false, /*ownElementOnly=*/true);
  add(commit.getTarget(), /*isWrite=*/true, /*ownElementOnly=*/false);
}

void KernelAccesses::addOp(Operation *op) { ops.push_back({op, step, epochs, earlyEpochs}); }

Access &KernelAccesses::add(Value buffer, bool isWrite, bool ownElementOnly) {
  buffers.push_back(rootOfBuffer(buffer));
  auto argument = dyn_cast<BlockArgument>(buffers.back());
  bool isInput = argument && !kernel.isOutput(argument.getArgNumber());
  // From the second step on a state is what the step before wrote.
  bool isWrittenBefore = isInput && step > 0 && kernel.getUpdatingArg(argument.getArgNumber());
  accesses.push_back({rangeOf(buffer), isWrite, static_cast<unsigned>(ops.size() - 1), epochs, ownElementOnly, step,
                      /*wantsInitial=*/!isWrite && isInput,
                      /*wantsWritten=*/!isWrite && (!isInput || isWrittenBefore), /*footprint=*/nullptr});
  return accesses.back();
}

MemoryRange KernelAccesses::rangeOf(Value buffer) {
  Value root = rootOfBuffer(buffer);
  auto type = cast<MemRefType>(root.getType());
  int64_t bytes = bytesOfBuffer(type), element = bytes / type.getNumElements();
  if (auto argument = dyn_cast<BlockArgument>(root)) {
    unsigned index = argument.getArgNumber();
    // With donated state the output is the memory of the state that it replaces; other outputs are each step's own.
    std::optional<unsigned> updated = kernel.getUpdatedArg(index);
    bool isPerStep = step > 0 && kernel.isOutput(index) && !updated;
    return {isPerStep ? ownMemory(root, step) : updated.value_or(index), 0, bytes, element};
  }
  auto op = cast<BufferOp>(root.getDefiningOp());
  unsigned place = op.getAlternates() ? step % 2 : 0;
  std::optional<uint64_t> offset = op.getOffset();
  if (!offset)
    return {ownMemory(root, place), 0, bytes, element};
  int64_t begin = *offset + place * op.getBytesOfPlace();
  return {arena, begin, begin + bytes, element};
}

unsigned KernelAccesses::ownMemory(Value root, unsigned ofStep) {
  return memoryOfOthers.try_emplace({root, ofStep}, arena + 1 + memoryOfOthers.size()).first->second;
}
