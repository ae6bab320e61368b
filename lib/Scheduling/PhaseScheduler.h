//===- PhaseScheduler.h - in which phase each op runs -----------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_SCHEDULING_PHASESCHEDULER_H
#define TRAINKERNEL_LIB_SCHEDULING_PHASESCHEDULER_H

#include "llvm/ADT/SmallVector.h"

#include <string>
#include <utility>

namespace trainkernel {

/// What a node reads of another one.
struct PhaseEdge {
  unsigned before = 0, after = 0;
  /// Each CTA reads only what it wrote itself.
  bool isLocal = false;
};

/// Nodes are numbered from 0.
struct PhaseProblem {
  unsigned numNodes = 0;
  llvm::SmallVector<PhaseEdge> dependences;
  /// (a, b): b overwrites what a reads: b's level should be later than a's, where that makes no level more than copying
  /// the result of b after a would.
  llvm::SmallVector<std::pair<unsigned, unsigned>> preferences;
};

/// When a node runs. All CTAs meet between two levels; within a level a CTA goes from depth to depth on its own.
struct PhasePlace {
  unsigned level = 0, depth = 0;
  bool operator<(const PhasePlace &other) const {
    return std::pair(level, depth) < std::pair(other.level, other.depth);
  }
  bool operator==(const PhasePlace &other) const { return level == other.level && depth == other.depth; }
};

/// The place of each node: as few levels as the dependences allow, each node as early as possible, except where a
/// preference asks for a later level. The dependences must have no cycle.
llvm::SmallVector<PhasePlace> schedulePhases(const PhaseProblem &problem);

/// The phases of a kernel in order: numbers the places that nodes have.
llvm::SmallVector<unsigned> numberPhases(llvm::ArrayRef<PhasePlace> places);

/// Says what is wrong with a schedule, or nothing. Always run after `schedulePhases`.
std::string verifyPhases(const PhaseProblem &problem, llvm::ArrayRef<PhasePlace> places);

} // namespace trainkernel

#endif
