//===- PhaseScheduler.cpp - in which phase each op runs -------------------===//

#include "lib/Scheduling/PhaseScheduler.h"

#include <algorithm>

using namespace trainkernel;
using Phases = llvm::SmallVector<unsigned>;

// Raises phases until every edge holds. A cycle is cut off by the number of rounds and left to the verifier.
static void raise(const PhaseProblem &problem, Phases &phases) {
  bool changed = true;
  for (unsigned round = 0; changed && round <= problem.numNodes; ++round) {
    changed = false;
    for (auto [before, after] : problem.dependences)
      if (phases[after] <= phases[before]) {
        phases[after] = phases[before] + 1;
        changed = true;
      }
  }
}

static unsigned lastPhase(const Phases &phases) {
  return phases.empty() ? 0 : *std::max_element(phases.begin(), phases.end());
}

llvm::SmallVector<unsigned> trainkernel::schedulePhases(const PhaseProblem &problem) {
  Phases phases(problem.numNodes, 0);
  raise(problem, phases);
  // What is not moved is copied once the reader has run, which would need the phase after the last one just as well.
  // Each accepted preference moves a node later, and none beyond that phase, so this ends.
  const unsigned limit = lastPhase(phases) + 1;
  bool changed = true;
  while (changed) {
    changed = false;
    for (auto [reader, writer] : problem.preferences) {
      if (reader == writer || phases[writer] > phases[reader])
        continue;
      Phases trial = phases;
      trial[writer] = phases[reader] + 1;
      raise(problem, trial);
      if (lastPhase(trial) > std::max(lastPhase(phases), std::min(phases[reader] + 1, limit)))
        continue;
      phases = trial;
      changed = true;
    }
  }
  return phases;
}

std::string trainkernel::verifyPhases(const PhaseProblem &problem, llvm::ArrayRef<unsigned> phases) {
  if (phases.size() != problem.numNodes)
    return "the schedule has another number of nodes than the problem";
  for (auto [before, after] : problem.dependences)
    if (phases[after] <= phases[before])
      return "node " + std::to_string(after) + " runs in phase " + std::to_string(phases[after]) + ", not after node " +
             std::to_string(before) + " in phase " + std::to_string(phases[before]);
  return "";
}
