//===- HoldState.cpp - state in shared memory from step to step -----------===//

#include "lib/Transforms/HoldState/HoldState.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Analysis/KernelAccesses.h"
#include "lib/Analysis/OnChip.h"
#include "lib/Analysis/SharedSpace.h"
#include "lib/Analysis/TileFootprint.h"
#include "lib/Scheduling/TargetTable.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKHOLDSTATE
#include "lib/Transforms/HoldState/HoldState.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;
using namespace trainkernel;

namespace {
/// A state that the CTAs which update it could hold.
struct Candidate {
  unsigned state;
  TileOp writer;
  unsigned output;
  Parts parts;
  /// The inputs that read it: a tile op's operands move when it gets another output.
  SmallVector<std::pair<TileOp, unsigned>> reads;

  bool isReadByOthers() const {
    return llvm::any_of(reads, [&](const auto &read) { return read.first != writer; });
  }
};

struct HoldStatePass : public megakernel::impl::TkHoldStateBase<HoldStatePass> {
  void runOnOperation() override {
    kernel = getOperation();
    std::optional<TargetFacts> target = findTarget(kernel.getTarget().value_or(""));
    if (kernel.getStepCount() != StepCount::Several || !target || target->kind != TargetKind::Cuda)
      return;
    SmallVector<Candidate> candidates;
    for (unsigned index = 0, e = kernel.getNumArguments(); index < e; ++index)
      if (std::optional<Candidate> found = candidateFor(index))
        candidates.push_back(std::move(*found));
    llvm::stable_sort(candidates,
                      [](const Candidate &a, const Candidate &b) { return a.isReadByOthers() && !b.isReadByOthers(); });
    SharedSpace space(kernel, target->sharedBytes);
    unsigned last = phasesWithEpochs(kernel).back().second;
    for (auto [number, candidate] : llvm::enumerate(candidates)) {
      int64_t bytes = bytesOfBuffer(typeOf(candidate)) / candidate.parts.count;
      std::optional<SharedRange> range = space.find(llvm::alignTo(bytes, 16), 0, last);
      if (!range)
        continue;
      space.take(number, *range);
      hold(candidate, *range);
      ++numHeld;
    }
    kernel.setSharedBytes(sharedBytesOf(kernel, target->sharedBytes));
  }

private:
  MemRefType typeOf(const Candidate &candidate) { return cast<MemRefType>(kernel.getArgumentTypes()[candidate.state]); }

  std::optional<Candidate> candidateFor(unsigned index) {
    std::optional<unsigned> updating = kernel.getUpdatingArg(index);
    if (!updating || cast<MemRefType>(kernel.getArgumentTypes()[index]).getNumElements() == 0)
      return std::nullopt;
    Value output = kernel.getArgument(*updating), state = kernel.getArgument(index);
    if (!output.hasOneUse())
      return std::nullopt;
    OpOperand &written = *output.getUses().begin();
    auto writer = dyn_cast<TileOp>(written.getOwner());
    if (!writer || written.getOperandNumber() < writer.getInputs().size())
      return std::nullopt;
    std::optional<Parts> parts = partsWritten(*footprintsOf(writer).outputs, kernel.getGrid());
    int64_t bytes = bytesOfBuffer(cast<MemRefType>(state.getType()));
    if (!parts || bytes / parts->count % 16 != 0)
      return std::nullopt;
    unsigned number = written.getOperandNumber() - writer.getInputs().size();
    Candidate candidate{index, writer, number, *parts, {}};
    for (OpOperand &use : state.getUses()) {
      if (!canReadPart(use, *parts))
        return std::nullopt;
      candidate.reads.emplace_back(cast<TileOp>(use.getOwner()), use.getOperandNumber());
    }
    return candidate;
  }

  // A reshape would have to be made of the buffer as well, and operands are kept of arguments alone.
  bool canReadPart(OpOperand &use, const Parts &parts) {
    auto reader = dyn_cast<TileOp>(use.getOwner());
    if (!reader || reader.getKeptAt())
      return false;
    return staysInParts(*footprintsOf(reader).inputs[use.getOperandNumber()], parts, kernel.getGrid());
  }

  void hold(const Candidate &candidate, const SharedRange &range) {
    OpBuilder builder(&kernel.getBody().front(), kernel.getBody().front().begin());
    TileOp writer = candidate.writer;
    auto buffer = BufferOp::create(builder, writer.getLoc(), typeOf(candidate));
    placeOnChip(buffer, range.begin, candidate.parts);
    buffer.setState(candidate.state);
    for (auto [reader, input] : candidate.reads)
      reader.getInputsMutable().slice(input, 1).assign(buffer.getResult());
    writer.getOutputsMutable().append(buffer.getResult());
    Operation *yield = writer.getBody().front().getTerminator();
    yield->insertOperands(yield->getNumOperands(), yield->getOperand(candidate.output));
  }

  KernelOp kernel;
};
} // namespace
