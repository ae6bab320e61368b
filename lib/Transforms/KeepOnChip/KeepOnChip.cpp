//===- KeepOnChip.cpp - values that stay in shared memory -----------------===//

#include "lib/Transforms/KeepOnChip/KeepOnChip.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Analysis/KernelAccesses.h"
#include "lib/Analysis/OnChip.h"
#include "lib/Analysis/SharedSpace.h"
#include "lib/Analysis/TileFootprint.h"
#include "lib/Scheduling/TargetTable.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKKEEPONCHIP
#include "lib/Transforms/KeepOnChip/KeepOnChip.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;
using namespace trainkernel;

namespace {
/// A value that tiles could take from the shared memory of their CTA.
struct Candidate {
  TileOp writer;
  unsigned output;
  Parts parts;
  /// Of each part.
  int64_t bytes;
  unsigned epoch;
  /// Those of its reads that stay within a CTA's own part, in program order.
  struct Read {
    TileOp tile;
    unsigned input, epoch;
  };
  SmallVector<Read> reads = {};
  bool isWrittenTwice = false;
};

struct KeepOnChipPass : public megakernel::impl::TkKeepOnChipBase<KeepOnChipPass> {
  using TkKeepOnChipBase::TkKeepOnChipBase;

  void runOnOperation() override {
    kernel = getOperation();
    // One pass may see several kernels.
    found.clear();
    candidates.clear();
    std::optional<TargetFacts> target = findTarget(kernel.getTarget().value_or(""));
    if (!target || target->kind != TargetKind::Cuda)
      return;
    collect();
    SharedSpace space(kernel, target->sharedBytes);
    unsigned farthest = maxDistance > 0 ? std::min<unsigned>(maxDistance, numEpochs) : numEpochs;
    for (unsigned distance = 1; distance < 2 * farthest; distance *= 2)
      for (size_t number = 0; number < candidates.size(); ++number)
        extend(space, number, std::min(distance, farthest));
    for (auto [number, candidate] : llvm::enumerate(candidates))
      if (std::optional<SharedRange> range = space.release(number)) {
        keep(candidate, *range);
        ++numOnChip;
      }
    kernel.setSharedBytes(sharedBytesOf(kernel, target->sharedBytes));
  }

private:
  void collect() {
    for (auto [phase, epoch] : phasesWithEpochs(kernel)) {
      numEpochs = epoch + 1;
      for (auto tile : phase.getBody().front().getOps<TileOp>())
        addReads(tile, epoch);
      for (auto tile : phase.getBody().front().getOps<TileOp>())
        addWrites(tile, epoch);
    }
    for (auto &[value, candidate] : found)
      if (!candidate.reads.empty() && !candidate.isWrittenTwice)
        candidates.push_back(std::move(candidate));
  }

  // Keeps a value for what reads it up to `distance` barriers later: what is needed soon, and for a short time, first.
  void extend(SharedSpace &space, size_t number, unsigned distance) {
    const Candidate &candidate = candidates[number];
    unsigned last = candidate.epoch;
    for (const Candidate::Read &read : candidate.reads)
      if (read.epoch <= candidate.epoch + distance)
        last = read.epoch;
    if (last == candidate.epoch)
      return;
    std::optional<SharedRange> old = space.release(number);
    std::optional<SharedRange> range =
        old && old->lastEpoch >= last ? old : space.find(llvm::alignTo(candidate.bytes, 16), candidate.epoch, last);
    if (range || old)
      space.take(number, range ? *range : *old);
  }

  void addReads(TileOp tile, unsigned epoch) {
    // To copy a value that is on chip already would gain nothing.
    if (isCopyOntoChip(tile))
      return;
    TileFootprints footprints = footprintsOf(tile);
    for (auto [index, input] : llvm::enumerate(tile.getInputs())) {
      // A reshape would have to be made of the new buffer as well.
      auto known = found.find(input);
      if (known != found.end() && staysInParts(*footprints.inputs[index], known->second.parts, kernel.getGrid()))
        known->second.reads.push_back({tile, static_cast<unsigned>(index), epoch});
    }
  }

  void addWrites(TileOp tile, unsigned epoch) {
    std::optional<Parts> parts = partsWritten(*footprintsOf(tile).outputs, kernel.getGrid());
    for (auto [index, output] : llvm::enumerate(tile.getOutputs())) {
      if (auto known = found.find(rootOfBuffer(output)); known != found.end())
        known->second.isWrittenTwice = true;
      if (onChipBufferOf(output))
        continue;
      int64_t bytes = parts ? bytesOfBuffer(cast<MemRefType>(output.getType())) / parts->count : 0;
      if (parts && bytes % 16 == 0 && rootOfBuffer(output) == output)
        found.insert({output, {tile, static_cast<unsigned>(index), *parts, bytes, epoch}});
    }
  }

  void keep(const Candidate &candidate, const SharedRange &range) {
    SmallVector<Candidate::Read> reads;
    for (const Candidate::Read &read : candidate.reads)
      if (read.epoch <= range.lastEpoch)
        reads.push_back(read);
    TileOp writer = candidate.writer;
    Value output = writer.getOutputs()[candidate.output];
    auto buffer = output.getDefiningOp<BufferOp>();
    if (!buffer || llvm::range_size(output.getUses()) > reads.size() + 1)
      buffer = addOutput(writer, candidate.output);
    placeOnChip(buffer, range.begin, candidate.parts);
    for (Candidate::Read &read : reads)
      read.tile.getInputsMutable().slice(read.input, 1).assign(buffer.getResult());
  }

  // Another buffer for the same result.
  BufferOp addOutput(TileOp writer, unsigned output) {
    OpBuilder builder(&kernel.getBody().front(), kernel.getBody().front().begin());
    auto buffer = BufferOp::create(builder, writer.getLoc(), writer.getOutputs()[output].getType());
    writer.getOutputsMutable().append(buffer.getResult());
    Operation *yield = writer.getBody().front().getTerminator();
    yield->insertOperands(yield->getNumOperands(), yield->getOperand(output));
    return buffer;
  }

  KernelOp kernel;
  llvm::MapVector<Value, Candidate> found;
  SmallVector<Candidate> candidates;
  unsigned numEpochs = 0;
};
} // namespace
