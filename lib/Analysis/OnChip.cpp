//===- OnChip.cpp - buffers in shared memory ------------------------------===//

#include "lib/Analysis/OnChip.h"

#include "lib/Analysis/KeptOperands.h"
#include "lib/Analysis/KernelAccesses.h"

using namespace mlir;
using namespace mlir::megakernel;

trainkernel::Parts mlir::megakernel::partsOf(BufferOp buffer) {
  return {static_cast<int64_t>(*buffer.getPart()), buffer.getNumParts(), static_cast<int64_t>(buffer.getFirstCta())};
}

void mlir::megakernel::placeOnChip(BufferOp buffer, int64_t at, const trainkernel::Parts &parts) {
  buffer.setSharedAt(at);
  buffer.setPart(parts.elements);
  buffer.setFirstCta(parts.firstCta);
}

BufferOp mlir::megakernel::onChipBufferOf(Value value) {
  auto buffer = rootOfBuffer(value).getDefiningOp<BufferOp>();
  return buffer && buffer.isOnChip() ? buffer : BufferOp();
}

SmallVector<std::pair<PhaseOp, unsigned>> mlir::megakernel::phasesWithEpochs(KernelOp kernel) {
  SmallVector<std::pair<PhaseOp, unsigned>> phases;
  unsigned epoch = 0;
  for (Operation &op : kernel.getBody().front()) {
    epoch += isa<BarrierOp>(op);
    if (auto phase = dyn_cast<PhaseOp>(op))
      phases.emplace_back(phase, epoch);
  }
  return phases;
}

SmallVector<PhaseInMemory> mlir::megakernel::phasesInMemory(KernelOp kernel) {
  SmallVector<OnChipBuffer> buffers = onChipBuffersOf(kernel);
  SmallVector<PhaseInMemory> phases;
  for (auto [place, keptBytes] : llvm::zip_equal(phasesWithEpochs(kernel), keptBytesOf(kernel))) {
    auto [phase, epoch] = place;
    int64_t reserved = keptBytes;
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
  for (auto [phase, epoch] : phasesWithEpochs(kernel))
    for (auto tile : phase.getBody().front().getOps<TileOp>())
      for (Value operand : tile->getOperands()) {
        BufferOp buffer = onChipBufferOf(operand);
        if (!buffer)
          continue;
        auto [entry, isNew] = known.try_emplace(buffer, found.size());
        if (isNew) {
          int64_t begin = *buffer.getSharedAt(), bytes = bytesOfBuffer(buffer.getType()) / buffer.getNumParts();
          found.push_back({buffer, begin, begin + bytes, epoch, epoch});
        }
        found[entry->second].lastEpoch = epoch;
      }
  return found;
}

bool mlir::megakernel::isCopyOntoChip(TileOp tile) {
  Block &body = tile.getBody().front();
  if (tile.getInputs().size() != 1 || tile.getOutputs().size() != 1 ||
      body.getTerminator()->getOperand(0) != body.getArgument(0))
    return false;
  return onChipBufferOf(tile.getOutputs().front()) && !onChipBufferOf(tile.getInputs().front());
}
