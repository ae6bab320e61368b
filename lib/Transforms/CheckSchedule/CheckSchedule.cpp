//===- CheckSchedule.cpp - races and deadlocks ----------------------------===//

#include "lib/Transforms/CheckSchedule/CheckSchedule.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Analysis/KeptOperands.h"
#include "lib/Analysis/KernelAccesses.h"
#include "lib/Analysis/TileFootprint.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKCHECKSCHEDULE
#include "lib/Transforms/CheckSchedule/CheckSchedule.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;
using namespace trainkernel;

// The op is not printed: the message names what matters of it.
static InFlightDiagnostic errorAt(Operation *op) { return mlir::emitError(op->getLoc()); }

// An argument by its path in the user's arguments or result, a buffer by its type and place.
static std::string nameOf(KernelOp kernel, Value memory) {
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
  if (std::optional<uint64_t> offset = cast<BufferOp>(memory.getDefiningOp()).getOffset())
    os << " at byte " << *offset;
  return name;
}

static LogicalResult verifyComplete(KernelOp kernel) {
  for (Operation &op : kernel.getBody().front()) {
    auto buffer = dyn_cast<BufferOp>(op);
    if (buffer && !buffer.getOffset())
      return errorAt(buffer) << nameOf(kernel, buffer) << " has no offset, expected 'tk-plan-buffers' to have run";
    if (auto commit = dyn_cast<CommitOp>(op))
      return errorAt(commit) << "commit to " << nameOf(kernel, rootOfBuffer(commit.getTarget()))
                             << " is not resolved, expected 'tk-commit-state' to have run";
    int64_t end = buffer ? *buffer.getOffset() + bytesOfBuffer(cast<MemRefType>(buffer.getType())) : 0;
    int64_t arena = kernel.getArenaBytes().value_or(0);
    if (buffer && end > arena)
      return errorAt(buffer) << nameOf(kernel, buffer) << " ends at byte " << end << " of an arena of " << arena
                             << " bytes, expected 'arena_bytes' to cover it";
  }
  return success();
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

/// Words what is wrong with a schedule. Phases go by their number, as in the report of a compiled step.
class ConflictReporter {
public:
  ConflictReporter(KernelOp kernel, const KernelAccesses &all) : kernel(kernel), all(all) {
    unsigned phases = 0;
    Epochs epochs;
    for (Operation &op : kernel.getBody().front()) {
      if (auto barrier = dyn_cast<BarrierOp>(op))
        epochs.pass(joinedBy(kernel, barrier.getScope()));
      if (isa<PhaseOp>(op))
        placeOf[&op] = {phases++, epochs};
    }
  }

  void report(const Conflict &conflict) const {
    switch (conflict.kind) {
    case Conflict::Race:
      return reportRace(conflict);
    case Conflict::Uninitialized:
      errorAt(opOf(conflict.second)) << doing(conflict.second) << ", of which no earlier phase wrote all bytes"
                                     << ", expected a write and a barrier before this phase";
      return;
    case Conflict::Overwritten:
      InFlightDiagnostic diag = errorAt(opOf(conflict.second))
                                << doing(conflict.second) << " after " << doing(conflict.first) << sharing(conflict)
                                << ", expected the read in an earlier phase";
      diag.attachNote(opOf(conflict.first)->getLoc()) << doing(conflict.first) << " here";
    }
  }

private:
  struct Place {
    unsigned phase;
    Epochs epochs;
  };

  void reportRace(const Conflict &conflict) const {
    Operation *first = opOf(conflict.first), *second = opOf(conflict.second);
    InFlightDiagnostic diag = errorAt(second) << doing(conflict.second);
    if (first == second) {
      diag << " at other elements than those that the same op writes, expected it in a later phase";
      return;
    }
    diag << " while " << doing(conflict.first) << sharing(conflict) << ", expected ";
    if (isEarly(conflict.second) || isEarly(conflict.first))
      diag << "the input not to be 'prefetched'";
    else if (place(conflict.first).phase == place(conflict.second).phase)
      diag << "two phases with a barrier" << ofScope(conflict) << " between them";
    else
      diag << "a barrier" << ofScope(conflict) << " between the two phases";
    diag.attachNote(first->getLoc()) << doing(conflict.first) << " here";
  }

  // Where there is a choice, the least that does.
  std::string ofScope(const Conflict &conflict) const {
    if (KernelOp(kernel).getGrid() == 1)
      return "";
    return (" of scope " + stringifyScope(static_cast<Scope>(static_cast<unsigned>(conflict.scope) - 1))).str();
  }

  Operation *opOf(unsigned access) const { return all.ops[all.accesses[access].op]; }
  const Place &place(unsigned access) const { return placeOf.find(opOf(access)->getParentOp())->second; }
  // A read ahead of the barrier before its phase.
  bool isEarly(unsigned access) const { return !(all.accesses[access].epochs == place(access).epochs); }

  // E.g. "phase 1 reads input x".
  std::string doing(unsigned access) const {
    std::string text;
    llvm::raw_string_ostream(text) << "phase " << place(access).phase
                                   << (all.accesses[access].isWrite ? " writes " : " reads ")
                                   << nameOf(kernel, all.buffers[access])
                                   << (isEarly(access) ? " ahead of the barrier before it" : "");
    return text;
  }

  // Why two names are one memory.
  StringRef sharing(const Conflict &conflict) const {
    Value first = all.buffers[conflict.first], second = all.buffers[conflict.second];
    if (first == second)
      return "";
    return isa<BlockArgument>(first) ? " (the same memory where the state is donated)" : " (they overlap in the arena)";
  }

  KernelOp kernel;
  const KernelAccesses &all;
  DenseMap<Operation *, Place> placeOf;
};
} // namespace

// A read beside a write is one mistake, though what it reads is not written before either.
static bool isSaidAlready(ArrayRef<Conflict> said, const Conflict &conflict) {
  return conflict.kind == Conflict::Uninitialized && llvm::any_of(said, [&](const Conflict &other) {
           return other.kind == Conflict::Race && other.second == conflict.second;
         });
}

namespace {
struct CheckSchedulePass : public megakernel::impl::TkCheckScheduleBase<CheckSchedulePass> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    KernelOp kernel = getOperation();
    if (failed(verifyComplete(kernel)))
      return signalPassFailure();
    if (failed(KeptChecker(kernel).check()))
      return signalPassFailure();
    KernelAccesses all(kernel);
    SmallVector<Conflict> conflicts = findConflicts(all.accesses, placementOf(kernel));
    ConflictReporter reporter(kernel, all);
    for (const Conflict &conflict : conflicts)
      if (!isSaidAlready(conflicts, conflict))
        reporter.report(conflict);
    if (!conflicts.empty())
      signalPassFailure();
  }
};
} // namespace
