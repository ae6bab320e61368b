//===- CheckSchedule.cpp - races and deadlocks ----------------------------===//

#include "lib/Transforms/CheckSchedule/CheckSchedule.h"

#include "dialects/Megakernel/MegakernelDialect.h"
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
