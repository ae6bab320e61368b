//===- ArenaPlanner.cpp - where buffers lie in the arena ------------------===//

#include "lib/Scheduling/ArenaPlanner.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <limits>
#include <numeric>

using namespace trainkernel;

static bool liveTogether(const ArenaBuffer &a, const ArenaBuffer &b) { return a.first <= b.last && b.first <= a.last; }

// The lowest start of the tightest gap among `taken` (sorted, disjointness not needed) that holds `bytes`.
static int64_t findGap(llvm::ArrayRef<std::pair<int64_t, int64_t>> taken, int64_t bytes) {
  int64_t best = -1, bestSlack = std::numeric_limits<int64_t>::max(), end = 0;
  for (auto [start, stop] : taken) {
    int64_t slack = start - end - bytes;
    if (slack >= 0 && slack < bestSlack) {
      best = end;
      bestSlack = slack;
    }
    end = std::max<int64_t>(end, llvm::alignTo(stop, arenaAlignment));
  }
  return best >= 0 ? best : end;
}

ArenaPlan trainkernel::planArena(llvm::ArrayRef<ArenaBuffer> buffers) {
  llvm::SmallVector<unsigned> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](unsigned a, unsigned b) { return buffers[a].bytes > buffers[b].bytes; });
  ArenaPlan plan;
  plan.offsets.assign(buffers.size(), 0);
  llvm::SmallVector<unsigned> placed;
  for (unsigned index : order) {
    llvm::SmallVector<std::pair<int64_t, int64_t>> taken;
    for (unsigned other : placed)
      if (liveTogether(buffers[index], buffers[other]))
        taken.emplace_back(plan.offsets[other], plan.offsets[other] + buffers[other].bytes);
    std::sort(taken.begin(), taken.end());
    plan.offsets[index] = findGap(taken, buffers[index].bytes);
    plan.bytes = std::max<int64_t>(plan.bytes, plan.offsets[index] + buffers[index].bytes);
    placed.push_back(index);
  }
  plan.bytes = llvm::alignTo(plan.bytes, arenaAlignment);
  return plan;
}

std::string trainkernel::verifyArena(llvm::ArrayRef<ArenaBuffer> buffers, const ArenaPlan &plan) {
  if (plan.offsets.size() != buffers.size())
    return "the plan has another number of buffers than the problem";
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (plan.offsets[i] < 0 || plan.offsets[i] % arenaAlignment != 0 || plan.offsets[i] + buffers[i].bytes > plan.bytes)
      return "buffer " + std::to_string(i) + " lies outside of the arena or is not aligned";
    for (size_t j = 0; j < i; ++j)
      if (liveTogether(buffers[i], buffers[j]) && plan.offsets[i] < plan.offsets[j] + buffers[j].bytes &&
          plan.offsets[j] < plan.offsets[i] + buffers[i].bytes)
        return "buffers " + std::to_string(j) + " and " + std::to_string(i) + " are live together and overlap";
  }
  return "";
}
