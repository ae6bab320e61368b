//===- OnChip.cpp - buffers in shared memory ------------------------------===//

#include "lib/Analysis/OnChip.h"

#include "lib/Analysis/KeptOperands.h"
#include "lib/Analysis/KernelAccesses.h"

using namespace mlir;
using namespace mlir::megakernel;

trainkernel::Parts mlir::megakernel::partsOf(BufferOp buffer) {
  return {static_cast<int64_t>(*buffer.getPart()), buffer.getNumParts(), static_cast<int64_t>(buffer.getFirstCta())};
}

SmallVector<PhaseInMemory> mlir::megakernel::phasesInMemory(KernelOp kernel) {
  SmallVector<OnChipBuffer> buffers = onChipBuffersOf(kernel);
  SmallVector<int64_t> kept = keptBytesOf(kernel);
  SmallVector<PhaseInMemory> phases;
  unsigned epoch = 0;
  for (Operation &op : kernel.getBody().front()) {
    epoch += isa<BarrierOp>(op);
    auto phase = dyn_cast<PhaseOp>(op);
    if (!phase)
      continue;
    int64_t keptBytes = kept[phases.size()], reserved = keptBytes;
    for (const OnChipBuffer &buffer : buffers)
      if (buffer.isLiveIn(epoch))
        reserved = std::max(reserved, buffer.end);
    phases.push_back({phase, epoch, keptBytes, reserved});
  }
  return phases;
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

bool mlir::megakernel::isCopyOntoChip(TileOp tile) {
  Block &body = tile.getBody().front();
  if (tile.getInputs().size() != 1 || tile.getOutputs().size() != 1 ||
      body.getTerminator()->getOperand(0) != body.getArgument(0))
    return false;
  auto source = rootOfBuffer(tile.getInputs().front()).getDefiningOp<BufferOp>();
  auto target = tile.getOutputs().front().getDefiningOp<BufferOp>();
  return target && target.isOnChip() && !(source && source.isOnChip());
}
