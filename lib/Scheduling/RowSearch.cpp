//===- RowSearch.cpp - which chains of ops stay in rows -------------------===//
//
// Hill climbing: of all ops that are linked by rows, those whose whole rows cost more than the barriers that they save
// leave the chain again, the most expensive first. The fastest chain is kept, and the rest of the step searched again.
//
//===----------------------------------------------------------------------===//

#include "lib/Scheduling/GridPlanner.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <numeric>

using namespace trainkernel;
using llvm::SmallVector;

namespace {
class RowSearch {
public:
  explicit RowSearch(const GridModel &model)
      : model(model), isTaken(model.step.ops.size(), false), time(model.plan({}).time) {}

  SmallVector<RowChain> run() {
    // One CTA needs no chains: all its barriers are cheap.
    if (model.grid == 1 && model.target.kind == TargetKind::Cuda)
      return {};
    while (addBest())
      ;
    return chains;
  }

private:
  bool addBest();
  SmallVector<RowBlocks> candidateRows() const;
  SmallVector<RowChain> components(const RowBlocks &rows, bool withContractions) const;
  double refine(RowChain &chain) const;
  llvm::SmallSetVector<unsigned, 16> endsOf(const RowChain &chain) const;
  bool dropSome(RowChain &chain, double &best) const;
  void dropLoners(RowChain &chain) const;
  double timeWith(const RowChain &chain) const;
  bool isLinked(const Dependence &edge, const RowBlocks &rows) const {
    return std::find(edge.sharedRows.begin(), edge.sharedRows.end(), rows.count) != edge.sharedRows.end();
  }

  const GridModel &model;
  SmallVector<bool> isTaken;
  SmallVector<RowChain> chains;
  double time;
};
} // namespace

// Predicted gains below this are noise.
static constexpr double leastGain = 0.02;

bool RowSearch::addBest() {
  RowChain best;
  double bestTime = time - leastGain;
  for (const RowBlocks &rows : candidateRows())
    for (bool withContractions : {true, false})
      for (RowChain &chain : components(rows, withContractions)) {
        double refined = refine(chain);
        if (refined < bestTime && chain.ops.size() > 1) {
          bestTime = refined - leastGain;
          best = chain;
        }
      }
  if (best.ops.empty())
    return false;
  for (unsigned op : best.ops)
    isTaken[op] = true;
  chains.push_back(best);
  time = model.plan(chains).time;
  return true;
}

SmallVector<RowBlocks> RowSearch::candidateRows() const {
  llvm::SmallSetVector<int64_t, 8> counts;
  for (const Dependence &edge : model.step.dependences)
    counts.insert(edge.sharedRows.begin(), edge.sharedRows.end());
  SmallVector<RowBlocks> candidates;
  // Few tiles first: more have to be worth it.
  for (int64_t count : counts)
    for (int64_t tiles = 1; tiles <= std::min(count, model.grid); ++tiles)
      if (count % tiles == 0 && (llvm::isPowerOf2_64(tiles) || llvm::isPowerOf2_64(count / tiles)))
        candidates.push_back({count, count / tiles});
  return candidates;
}

// The ops that are linked by rows, directly or through others.
SmallVector<RowChain> RowSearch::components(const RowBlocks &rows, bool withContractions) const {
  unsigned numOps = model.step.ops.size();
  SmallVector<unsigned> root(numOps);
  std::iota(root.begin(), root.end(), 0);
  auto find = [&](unsigned op) {
    while (root[op] != op)
      op = root[op] = root[root[op]];
    return op;
  };
  auto fits = [&](unsigned op) {
    return !isTaken[op] && (withContractions || model.step.ops[op].kind != OpModel::Contraction) &&
           model.planner.inRows(op, rows);
  };
  bool anyContraction = false;
  for (const Dependence &edge : model.step.dependences)
    if (isLinked(edge, rows) && fits(edge.before) && fits(edge.after)) {
      root[find(edge.after)] = find(edge.before);
      for (unsigned op : {edge.before, edge.after})
        anyContraction |= model.step.ops[op].kind == OpModel::Contraction;
    }
  // Those without contractions are the same again where there are none.
  if (withContractions && !anyContraction)
    return {};
  SmallVector<RowChain> found(numOps);
  for (unsigned op = 0; op < numOps; ++op)
    found[find(op)].ops.push_back(op);
  found.erase(std::remove_if(found.begin(), found.end(), [](const RowChain &chain) { return chain.ops.size() < 2; }),
              found.end());
  for (RowChain &chain : found)
    chain.rows = rows;
  return found;
}

double RowSearch::timeWith(const RowChain &chain) const {
  SmallVector<RowChain> all = chains;
  all.push_back(chain);
  return model.plan(all).time;
}

double RowSearch::refine(RowChain &chain) const {
  double best = timeWith(chain);
  while (chain.ops.size() > 1 && dropSome(chain, best))
    ;
  dropLoners(chain);
  return chain.ops.size() > 1 ? timeWith(chain) : time;
}

// The ops of a chain that it starts or ends with.
llvm::SmallSetVector<unsigned, 16> RowSearch::endsOf(const RowChain &chain) const {
  llvm::SmallSetVector<unsigned, 16> members, read, reading, ends;
  members.insert(chain.ops.begin(), chain.ops.end());
  for (const Dependence &edge : model.step.dependences)
    if (members.contains(edge.before) && members.contains(edge.after)) {
      read.insert(edge.before);
      reading.insert(edge.after);
    }
  for (unsigned op : chain.ops)
    if (!read.contains(op) || !reading.contains(op))
      ends.insert(op);
  return ends;
}

// Drops what the chain is faster without; false where that is nothing.
bool RowSearch::dropSome(RowChain &chain, double &best) const {
  constexpr double leastExcess = 0.05;
  auto excess = [&](unsigned op) {
    return model.planner.inRows(op, chain.rows)->tileTime - model.planner.onCtas(op, model.grid).tileTime;
  };
  llvm::SmallSetVector<unsigned, 16> ends = endsOf(chain);
  SmallVector<unsigned> order;
  for (unsigned op : chain.ops)
    if (excess(op) > leastExcess || ends.contains(op))
      order.push_back(op);
  std::stable_sort(order.begin(), order.end(), [&](unsigned a, unsigned b) { return excess(a) > excess(b); });
  bool dropped = false;
  for (unsigned op : order) {
    RowChain trial = chain;
    trial.ops.erase(std::find(trial.ops.begin(), trial.ops.end(), op));
    double without = timeWith(trial);
    if (without >= best)
      continue;
    best = without;
    chain = trial;
    dropped = true;
  }
  return dropped;
}

// What no other op of the chain is linked to gains nothing from its rows.
void RowSearch::dropLoners(RowChain &chain) const {
  llvm::SmallSetVector<unsigned, 16> members, linked;
  members.insert(chain.ops.begin(), chain.ops.end());
  for (const Dependence &edge : model.step.dependences)
    if (members.contains(edge.before) && members.contains(edge.after) && isLinked(edge, chain.rows)) {
      linked.insert(edge.before);
      linked.insert(edge.after);
    }
  chain.ops.erase(std::remove_if(chain.ops.begin(), chain.ops.end(), [&](unsigned op) { return !linked.contains(op); }),
                  chain.ops.end());
}

SmallVector<RowChain> trainkernel::searchRowChains(const GridModel &model) { return RowSearch(model).run(); }
