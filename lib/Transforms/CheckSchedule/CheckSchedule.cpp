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
    if (failed(KeptChecker(kernel).check()))
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
