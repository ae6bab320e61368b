//===- PhaseScheduler.h - in which phase each op runs -----------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_SCHEDULING_PHASESCHEDULER_H
#define TRAINKERNEL_LIB_SCHEDULING_PHASESCHEDULER_H

#include "llvm/ADT/SmallVector.h"

#include <string>
#include <utility>

namespace trainkernel {

/// Nodes are numbered from 0. An edge (a, b) says that b comes after a.
struct PhaseProblem {
  unsigned numNodes = 0;
  /// b reads what a writes: b's phase is later than a's.
  llvm::SmallVector<std::pair<unsigned, unsigned>> dependences;
  /// b overwrites what a reads: b's phase should be later than a's, where that makes no phase more than copying the
  /// result of b after a would.
  llvm::SmallVector<std::pair<unsigned, unsigned>> preferences;
};

/// The phase of each node: as few phases as the dependences allow, each node as early as possible, except where a
/// preference asks for a later phase. The dependences must have no cycle.
llvm::SmallVector<unsigned> schedulePhases(const PhaseProblem &problem);

/// Says what is wrong with a schedule, or nothing. Always run after `schedulePhases`.
std::string verifyPhases(const PhaseProblem &problem, llvm::ArrayRef<unsigned> phases);

} // namespace trainkernel

#endif
