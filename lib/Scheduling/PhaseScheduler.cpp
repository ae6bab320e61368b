//===- PhaseScheduler.cpp - in which phase each op runs -------------------===//

#include "lib/Scheduling/PhaseScheduler.h"

#include <algorithm>

using namespace trainkernel;
using Places = llvm::SmallVector<PhasePlace>;

// Where `edge` lets its second node run at the earliest.
static PhasePlace earliest(const PhaseEdge &edge, const Places &places) {
  PhasePlace before = places[edge.before];
  return edge.isLocal ? PhasePlace{before.level, before.depth + 1} : PhasePlace{before.level + 1, 0};
}

// Raises places until every edge holds. A cycle is cut off by the number of rounds and left to the verifier.
static void raise(const PhaseProblem &problem, Places &places) {
  bool changed = true;
  for (unsigned round = 0; changed && round <= problem.numNodes; ++round) {
    changed = false;
    for (const PhaseEdge &edge : problem.dependences)
      if (places[edge.after] < earliest(edge, places)) {
        places[edge.after] = earliest(edge, places);
        changed = true;
      }
  }
}

static unsigned lastLevel(const Places &places) {
  return places.empty() ? 0 : std::max_element(places.begin(), places.end())->level;
}

Places trainkernel::schedulePhases(const PhaseProblem &problem) {
  Places places(problem.numNodes);
  raise(problem, places);
  // What is not moved is copied once the reader has run, which would need the level after the last one just as well.
  // Each accepted preference moves a node later, and none beyond that level, so this ends.
  const unsigned limit = lastLevel(places) + 1;
  bool changed = true;
  while (changed) {
    changed = false;
    for (auto [reader, writer] : problem.preferences) {
      unsigned level = places[reader].level;
      if (reader == writer || places[writer].level > level)
        continue;
      Places trial = places;
      trial[writer] = {level + 1, 0};
      raise(problem, trial);
      if (lastLevel(trial) > std::max(lastLevel(places), std::min(level + 1, limit)))
        continue;
      places = trial;
      changed = true;
    }
  }
  return places;
}

llvm::SmallVector<unsigned> trainkernel::numberPhases(llvm::ArrayRef<PhasePlace> places) {
  Places sorted(places.begin(), places.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  llvm::SmallVector<unsigned> phases;
  for (const PhasePlace &place : places)
    phases.push_back(std::lower_bound(sorted.begin(), sorted.end(), place) - sorted.begin());
  return phases;
}

std::string trainkernel::verifyPhases(const PhaseProblem &problem, llvm::ArrayRef<PhasePlace> places) {
  if (places.size() != problem.numNodes)
    return "the schedule has another number of nodes than the problem";
  auto name = [&](unsigned node) {
    return "node " + std::to_string(node) + " at level " + std::to_string(places[node].level) + ", depth " +
           std::to_string(places[node].depth);
  };
  for (const PhaseEdge &edge : problem.dependences) {
    const PhasePlace &before = places[edge.before], &after = places[edge.after];
    if (edge.isLocal ? !(before < after) : before.level >= after.level)
      return name(edge.after) + " does not run after " + name(edge.before);
  }
  return "";
}
