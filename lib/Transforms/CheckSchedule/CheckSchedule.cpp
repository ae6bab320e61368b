//===- CheckSchedule.cpp - races and deadlocks ----------------------------===//

#include "lib/Transforms/CheckSchedule/CheckSchedule.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Analysis/KernelAccesses.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKCHECKSCHEDULE
#include "lib/Transforms/CheckSchedule/CheckSchedule.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;
using trainkernel::Conflict;

// The op is not printed: the message names what matters of it.
static InFlightDiagnostic errorAt(Operation *op) { return mlir::emitError(op->getLoc()); }

// `what` joins the threads of `scope`.
static LogicalResult verifyScope(KernelOp kernel, Operation *op, StringRef what, Scope scope) {
  bool isOneCta = kernel.getGrid() == 1, isOneCluster = kernel.getGrid() == kernel.getCluster();
  if (scope == Scope::Cta && !isOneCta)
    return errorAt(op) << what << " of scope cta in a grid of " << kernel.getGrid()
                       << " CTAs, expected a scope that joins all of them";
  if (scope == Scope::Cluster && !isOneCluster)
    return errorAt(op) << what << " of scope cluster in a grid of " << kernel.getGrid() << " CTAs in clusters of "
                       << kernel.getCluster() << ", expected scope grid to join all of them";
  return success();
}

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
    auto barrier = dyn_cast<BarrierOp>(op);
    if (barrier && failed(verifyScope(kernel, barrier, "barrier", barrier.getScope())))
      return failure();
    auto repeat = dyn_cast<RepeatOp>(op);
    if (repeat && failed(verifyScope(kernel, repeat, "repeat", repeat.getScope())))
      return failure();
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
    unsigned phases = 0, epoch = 0;
    for (Operation &op : kernel.getBody().front()) {
      if (isa<BarrierOp>(op))
        ++epoch;
      if (isa<PhaseOp>(op))
        placeOf[&op] = {phases++, epoch};
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
    unsigned phase, epoch;
  };

  void reportRace(const Conflict &conflict) const {
    InFlightDiagnostic diag = errorAt(opOf(conflict.second)) << doing(conflict.second);
    if (all.accesses[conflict.first].op == all.accesses[conflict.second].op) {
      diag << " at other elements than those that the same op writes, expected it in a later phase";
      return;
    }
    diag << " while " << doing(conflict.first) << sharing(conflict) << ", expected ";
    if (isEarly(conflict.second) || isEarly(conflict.first))
      diag << "the input not to be 'prefetched'";
    else
      diag << (place(conflict.first).phase == place(conflict.second).phase ? "two phases with a barrier between them"
                                                                           : "a barrier between the two phases");
    diag.attachNote(opOf(conflict.first)->getLoc()) << doing(conflict.first) << " here";
  }

  Operation *opOf(unsigned access) const { return all.ops[all.accesses[access].op]; }
  const Place &place(unsigned access) const { return placeOf.find(opOf(access)->getParentOp())->second; }
  // A read ahead of the barrier before its phase.
  bool isEarly(unsigned access) const {
    const trainkernel::Access &found = all.accesses[access];
    return found.epoch < place(access).epoch + found.step * all.epochsPerStep;
  }

  // E.g. "phase 1 reads input x".
  std::string doing(unsigned access) const {
    std::string text;
    llvm::raw_string_ostream(text) << "phase " << place(access).phase
                                   << (all.accesses[access].isWrite ? " writes " : " reads ")
                                   << nameOf(kernel, all.buffers[access])
                                   << (all.accesses[access].step > 0 ? " in the next step" : "")
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

// A read beside a write is one mistake, though what it reads is not written before either. What is wrong within a step
// is wrong within the next one, too.
static bool isSaidAlready(const KernelAccesses &all, ArrayRef<Conflict> said, const Conflict &conflict) {
  if (conflict.first != conflict.second && all.accesses[conflict.first].step > 0)
    return true;
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
    SmallVector<Conflict> conflicts = trainkernel::findConflicts(all.accesses);
    ConflictReporter reporter(kernel, all);
    for (const Conflict &conflict : conflicts)
      if (!isSaidAlready(all, conflicts, conflict))
        reporter.report(conflict);
    if (!conflicts.empty())
      signalPassFailure();
  }
};
} // namespace
