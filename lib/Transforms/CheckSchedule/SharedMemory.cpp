//===- SharedMemory.cpp - checks of shared memory -------------------------===//

#include "lib/Transforms/CheckSchedule/SharedMemory.h"

#include "lib/Analysis/KeptOperands.h"
#include "lib/Analysis/OnChip.h"
#include "lib/Analysis/RowsOnChip.h"
#include "lib/Analysis/TileFootprint.h"
#include "lib/Analysis/TileGeometry.h"

using namespace mlir;
using namespace mlir::megakernel;
using namespace trainkernel;

InFlightDiagnostic mlir::megakernel::errorAt(Operation *op) { return mlir::emitError(op->getLoc()); }

std::string mlir::megakernel::nameOf(KernelOp kernel, Value memory) {
  std::string name;
  llvm::raw_string_ostream os(name);
  if (auto argument = dyn_cast<BlockArgument>(memory)) {
    unsigned index = argument.getArgNumber();
    os << (kernel.isOutput(index) ? "output " : "input ");
    auto path = kernel.getArgAttrOfType<StringAttr>(index, MegakernelDialect::getPathAttrName());
    if (path)
      os << path.getValue();
    else
      os << "argument " << index;
    return name;
  }
  os << "buffer " << memory.getType();
  auto buffer = cast<BufferOp>(memory.getDefiningOp());
  if (std::optional<uint64_t> offset = buffer.getOffset())
    os << " at byte " << *offset;
  if (std::optional<uint64_t> at = buffer.getSharedAt())
    os << " at byte " << *at << " of shared memory";
  return name;
}

namespace {
/// Walks a kernel with what its CTAs keep in shared memory.
class KeptChecker {
public:
  explicit KeptChecker(KernelOp kernel) : kernel(kernel) {}

  LogicalResult check() {
    for (auto phase : kernel.getBody().front().getOps<PhaseOp>()) {
      auto tiles = phase.getBody().front().getOps<TileOp>();
      for (auto tile : tiles)
        llvm::erase_if(kept, [&](const Kept &other) {
          return llvm::any_of(other.content.sources, [&](Value source) { return mayWrite(kernel, tile, source); });
        });
      for (auto tile : tiles)
        if (tile.getReusesKept() && failed(checkReuse(tile)))
          return failure();
      for (auto tile : tiles)
        if (tile.getKeptAt() && !tile.getReusesKept() && failed(stage(tile)))
          return failure();
    }
    return success();
  }

private:
  struct Kept {
    int64_t begin;
    OperandContent content;
  };

  LogicalResult checkReuse(TileOp tile) {
    std::optional<OperandContent> content = contentToKeep(kernel, tile);
    int64_t begin = *tile.getKeptAt();
    if (content &&
        llvm::any_of(kept, [&](const Kept &other) { return other.begin == begin && other.content.isSame(*content); }))
      return success();
    return errorAt(tile) << "operand is taken from byte " << begin
                         << " of shared memory, where no earlier phase keeps it on the same CTAs, expected no "
                            "'reuses_kept'";
  }

  // What is kept elsewhere must not be overwritten before its last use; the rest of shared memory lies behind it.
  LogicalResult stage(TileOp tile) {
    std::optional<OperandContent> content = contentToKeep(kernel, tile);
    int64_t begin = *tile.getKeptAt(), shared = kernel.getSharedBytes().value_or(0);
    if (!content)
      return errorAt(tile) << "operand is kept, but differs from tile to tile or is not computed from inputs alone, "
                              "expected no 'kept_at'";
    if (begin + content->bytes > shared)
      return errorAt(tile) << "operand is kept up to byte " << begin + content->bytes
                           << " of shared memory, expected 'shared_bytes' of the kernel (" << shared << ") to cover it";
    llvm::erase_if(kept, [&](const Kept &other) {
      return other.begin < begin + content->bytes && begin < other.begin + other.content.bytes;
    });
    kept.push_back({begin, *content});
    return success();
  }

  KernelOp kernel;
  SmallVector<Kept> kept;
};

/// Checks that CTAs leave alone what others have in their shared memory, and each CTA what it needs later.
class OnChipChecker {
public:
  explicit OnChipChecker(KernelOp kernel) : kernel(kernel), buffers(onChipBuffersOf(kernel)) {}

  LogicalResult check() {
    for (const PhaseInMemory &phase : phasesInMemory(kernel)) {
      for (auto tile : PhaseOp(phase.phase).getBody().front().getOps<TileOp>())
        if (failed(checkParts(tile)) || failed(checkRows(tile)))
          return failure();
      if (failed(checkSpace(phase)))
        return failure();
    }
    for (size_t i = 0; i < buffers.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (failed(checkApart(buffers[j], buffers[i])))
          return failure();
    return success();
  }

private:
  LogicalResult checkRows(TileOp tile) {
    std::optional<int64_t> at = tile.getRowsAt();
    if (!at || findRowsOnChip(kernel, tile) == at)
      return success();
    return errorAt(tile) << "rows are taken from byte " << *at
                         << " of shared memory, where the CTA does not have them as they are multiplied, expected no "
                            "'rows_at'";
  }

  LogicalResult checkParts(TileOp tile) {
    auto check = [&](Value operand, std::shared_ptr<const Footprint> footprint) -> LogicalResult {
      BufferOp buffer = onChipBufferOf(operand);
      if (!buffer || staysInParts(*footprint, partsOf(buffer), kernel.getGrid()))
        return success();
      InFlightDiagnostic diag = errorAt(tile) << "a tile touches " << nameOf(kernel, buffer)
                                              << " beyond the part of its own CTA, expected a buffer in the arena";
      diag.attachNote(buffer.getLoc()) << "the buffer is made here";
      return diag;
    };
    if (llvm::none_of(tile->getOperands(), onChipBufferOf))
      return success();
    TileFootprints footprints = footprintsOf(tile);
    for (auto [input, footprint] : llvm::zip(tile.getInputs(), footprints.inputs))
      if (failed(check(input, footprint)))
        return failure();
    for (Value output : tile.getOutputs())
      if (failed(check(output, footprints.outputs)))
        return failure();
    return success();
  }

  LogicalResult checkSpace(const PhaseInMemory &phase) {
    int64_t shared = kernel.getSharedBytes().value_or(0);
    bool isLive = false;
    for (OnChipBuffer &buffer : buffers) {
      if (!buffer.isLiveIn(phase.epoch))
        continue;
      isLive = true;
      if (buffer.begin < phase.keptBytes)
        return errorAt(buffer.buffer) << nameOf(kernel, buffer.buffer) << " lies in the first " << phase.keptBytes
                                      << " bytes, which hold kept operands at the time, expected it behind them";
    }
    int64_t needed = SharedLayout(phase, kernel.getThreads(), shared).bytes;
    if (!isLive || needed <= shared)
      return success();
    return errorAt(phase.phase) << "phase needs " << needed
                                << " bytes of shared memory, expected 'shared_bytes' of the kernel (" << shared
                                << ") to cover it";
  }

  LogicalResult checkApart(OnChipBuffer first, OnChipBuffer second) {
    bool meet = first.begin < second.end && second.begin < first.end && first.firstEpoch <= second.lastEpoch &&
                second.firstEpoch <= first.lastEpoch;
    if (!meet)
      return success();
    InFlightDiagnostic diag = errorAt(second.buffer) << nameOf(kernel, second.buffer)
                                                     << " overlaps another buffer that is in use between the same "
                                                        "barriers, expected a place of its own";
    diag.attachNote(first.buffer.getLoc()) << "the other one is " << nameOf(kernel, first.buffer);
    return diag;
  }

  KernelOp kernel;
  SmallVector<OnChipBuffer> buffers;
};
} // namespace

LogicalResult mlir::megakernel::checkSharedMemory(KernelOp kernel) {
  return success(succeeded(KeptChecker(kernel).check()) && succeeded(OnChipChecker(kernel).check()));
}
