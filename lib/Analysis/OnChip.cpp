//===- OnChip.cpp - buffers in shared memory ------------------------------===//

#include "lib/Analysis/OnChip.h"

#include "lib/Analysis/KeptOperands.h"
#include "lib/Analysis/KernelAccesses.h"

using namespace mlir;
using namespace mlir::megakernel;

trainkernel::Parts mlir::megakernel::partsOf(BufferOp buffer) {
  return {static_cast<int64_t>(*buffer.getPart()), buffer.getNumParts(), static_cast<int64_t>(buffer.getFirstCta())};
}

unsigned mlir::megakernel::epochOf(PhaseOp phase) {
  unsigned epoch = 0;
  for (Operation *op = phase->getPrevNode(); op; op = op->getPrevNode())
    epoch += isa<BarrierOp>(op);
  return epoch;
}

SmallVector<OnChipBuffer> mlir::megakernel::onChipBuffersOf(KernelOp kernel) {
  SmallVector<OnChipBuffer> found;
  DenseMap<Value, size_t> known;
  unsigned epoch = 0;
  for (Operation &op : kernel.getBody().front()) {
    epoch += isa<BarrierOp>(op);
    auto phase = dyn_cast<PhaseOp>(op);
    if (!phase)
      continue;
    for (auto tile : phase.getBody().front().getOps<TileOp>())
      for (Value operand : tile->getOperands()) {
        auto buffer = rootOfBuffer(operand).getDefiningOp<BufferOp>();
        if (!buffer || !buffer.isOnChip())
          continue;
        auto [entry, isNew] = known.try_emplace(buffer, found.size());
        if (isNew) {
          int64_t begin = *buffer.getSharedAt(), bytes = bytesOfBuffer(buffer.getType()) / buffer.getNumParts();
          found.push_back({buffer, begin, begin + bytes, epoch, epoch});
        }
        found[entry->second].lastEpoch = epoch;
      }
  }
  return found;
}

int64_t mlir::megakernel::reservedBytesAt(PhaseOp phase) {
  unsigned epoch = epochOf(phase);
  int64_t bytes = keptBytesAt(phase);
  for (const OnChipBuffer &buffer : onChipBuffersOf(phase->getParentOfType<KernelOp>()))
    if (buffer.isLiveIn(epoch))
      bytes = std::max(bytes, buffer.end);
  return bytes;
}

bool mlir::megakernel::isCopyOntoChip(TileOp tile) {
  Block &body = tile.getBody().front();
  if (tile.getInputs().size() != 1 || tile.getOutputs().size() != 1 ||
      body.getTerminator()->getOperand(0) != body.getArgument(0))
    return false;
  auto source = rootOfBuffer(tile.getInputs().front()).getDefiningOp<BufferOp>();
  auto target = tile.getOutputs().front().getDefiningOp<BufferOp>();
  return target && target.isOnChip() && !(source && source.isOnChip());
}
