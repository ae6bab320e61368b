//===- CheckSchedule.cpp - races and deadlocks ----------------------------===//

#include "lib/Transforms/CheckSchedule/CheckSchedule.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Analysis/KernelAccesses.h"
#include "lib/Analysis/TileFootprint.h"
#include "lib/Transforms/CheckSchedule/SharedMemory.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKCHECKSCHEDULE
#include "lib/Transforms/CheckSchedule/CheckSchedule.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;
using namespace trainkernel;

static LogicalResult verifyComplete(KernelOp kernel) {
  for (Operation &op : kernel.getBody().front()) {
    auto buffer = dyn_cast<BufferOp>(op);
    if (buffer && buffer.isOnChip())
      continue;
    if (buffer && !buffer.getOffset())
      return errorAt(buffer) << nameOf(kernel, buffer) << " has no offset, expected 'tk-plan-buffers' to have run";
    if (auto commit = dyn_cast<CommitOp>(op))
      return errorAt(commit) << "commit to " << nameOf(kernel, rootOfBuffer(commit.getTarget()))
                             << " is not resolved, expected 'tk-commit-state' to have run";
    int64_t end = buffer ? *buffer.getOffset() + buffer.getBytesInArena() : 0;
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
    for (auto [number, phase] : llvm::enumerate(kernel.getBody().front().getOps<PhaseOp>()))
      phaseOf[phase] = number;
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
  void reportRace(const Conflict &conflict) const {
    InFlightDiagnostic diag = errorAt(opOf(conflict.second)) << doing(conflict.second);
    if (all.accesses[conflict.first].op == all.accesses[conflict.second].op) {
      diag << " at other elements than those that the same op writes, expected it in a later phase";
      return;
    }
    diag << " while " << doing(conflict.first) << sharing(conflict) << ", expected ";
    if (isEarly(conflict.second) || isEarly(conflict.first))
      diag << "the input not to be 'prefetched'";
    else if (all.accesses[conflict.first].step != all.accesses[conflict.second].step)
      diag << "a repeat" << ofScope(conflict) << " between the two steps";
    else if (phase(conflict.first) == phase(conflict.second))
      diag << "two phases with a barrier" << ofScope(conflict) << " between them";
    else
      diag << "a barrier" << ofScope(conflict) << " between the two phases";
    diag.attachNote(opOf(conflict.first)->getLoc()) << doing(conflict.first) << " here";
  }

  // Where there is a choice, the least that does.
  std::string ofScope(const Conflict &conflict) const {
    if (KernelOp(kernel).getGrid() == 1)
      return "";
    return (" of scope " + stringifyScope(static_cast<Scope>(static_cast<unsigned>(conflict.scope) - 1))).str();
  }

  Operation *opOf(unsigned access) const { return all.ops[all.accesses[access].op].op; }
  unsigned phase(unsigned access) const { return phaseOf.lookup(opOf(access)->getParentOp()); }
  // A read ahead of the barrier before its phase.
  bool isEarly(unsigned access) const {
    return !(all.accesses[access].epochs == all.ops[all.accesses[access].op].epochs);
  }

  // E.g. "phase 1 reads input x".
  std::string doing(unsigned access) const {
    std::string text;
    llvm::raw_string_ostream(text) << "phase " << phase(access)
                                   << (all.accesses[access].isWrite ? " writes " : " reads ")
                                   << nameOf(kernel, all.buffers[access]) << stepOf(access)
                                   << (isEarly(access) ? " ahead of the barrier before it" : "");
    return text;
  }

  StringRef stepOf(unsigned access) const {
    constexpr StringRef names[] = {"", " in the next step", " in the step after the next"};
    return names[all.accesses[access].step];
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
  DenseMap<Operation *, unsigned> phaseOf;
};
} // namespace

// A read beside a write is one mistake, though what it reads is not written before either. What is wrong within a step
// is wrong within the next one, too.
static bool isSaidAlready(const KernelAccesses &all, ArrayRef<Conflict> said, const Conflict &conflict) {
  const Access &first = all.accesses[conflict.first];
  if (first.step > 0 && (conflict.first != conflict.second || !first.wantsInitial))
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
    if (failed(checkSharedMemory(kernel)))
      return signalPassFailure();
    KernelAccesses all(kernel);
    SmallVector<Conflict> conflicts = findConflicts(all.accesses, placementOf(kernel));
    ConflictReporter reporter(kernel, all);
    for (const Conflict &conflict : conflicts)
      if (!isSaidAlready(all, conflicts, conflict))
        reporter.report(conflict);
    if (!conflicts.empty())
      signalPassFailure();
  }
};
} // namespace
