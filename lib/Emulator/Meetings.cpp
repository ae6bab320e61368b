//===- Meetings.cpp - barriers of CTAs, clusters and the grid -------------===//

#include "lib/Emulator/Emulator.h"

#include <algorithm>

namespace trainkernel::emulator {

TK_EMU_EXPORT void tk_emu_barrier(uint32_t site) {
  Thread &thread = *launch->current;
  Cta &cta = *thread.cta;
  thread.site = site;
  for (const WarpOp &op : thread.warp->ops)
    if (op.mask >> thread.lane() & 1)
      launch->fail("is at " + launch->nameOfSite(site) + ", while threads of its warp wait for it in " +
                   launch->nameOfSite(op.site));
  if (cta.exited)
    launch->fail("is at " + launch->nameOfSite(site) + ", which " + std::to_string(cta.exited) +
                 " threads of its CTA have ended without");
  if (cta.arrived && cta.barrierSite != site)
    launch->fail("is at " + launch->nameOfSite(site) + ", while others of its CTA are at another " +
                 launch->nameOfSite(cta.barrierSite));
  cta.barrierSite = site;
  if (++cta.arrived < cta.threads.size())
    return launch->block(State::AtBarrier, site);
  cta.arrived = 0;
  launch->passBarrier(cta);
  for (Thread &other : cta.threads)
    if (other.state == State::AtBarrier)
      launch->wake(other);
  // Anybody may be first.
  launch->wake(thread);
  launch->block(State::Ready, site);
}

// Aligned: all threads of a warp are there at once.
static void joinWarp(uint32_t site) { meet(launch->current->warp->all, 0, site, nullptr, nullptr, nullptr); }

TK_EMU_EXPORT void tk_emu_cluster_arrive(uint32_t site) {
  Thread &thread = *launch->current;
  Cluster &cluster = *thread.cta->cluster;
  joinWarp(site);
  if (thread.hasArrivedAtCluster)
    launch->fail("arrives again in " + launch->nameOfSite(site) + ", without a wait before");
  thread.hasArrivedAtCluster = true;
  thread.clusterRound = cluster.rounds;
  thread.cta->clusterEpoch = ++thread.epoch;
  if (++cluster.arrived < launch->spec.cluster * launch->spec.threads)
    return;
  cluster.arrived = 0;
  ++cluster.rounds;
  launch->passCluster(cluster);
  for (Cta &cta : launch->ctas)
    for (Thread &other : cta.threads)
      if (cta.cluster == &cluster && other.state == State::AtCluster)
        launch->wake(other);
}

TK_EMU_EXPORT void tk_emu_cluster_wait(uint32_t site) {
  Thread &thread = *launch->current;
  Cluster &cluster = *thread.cta->cluster;
  joinWarp(site);
  if (!thread.hasArrivedAtCluster)
    launch->fail("waits in " + launch->nameOfSite(site) + " without an arrival");
  if (cluster.rounds == thread.clusterRound)
    launch->block(State::AtCluster, site);
  thread.hasArrivedAtCluster = false;
  launch->learnFromCluster(thread);
}

static bool mayPass(const Thread &thread) { return static_cast<int32_t>(*thread.counter ^ thread.arrival) < 0; }

TK_EMU_EXPORT uint32_t tk_emu_grid_arrive(uint32_t *counter, uint32_t amount, uint32_t site) {
  launch->current->site = site;
  launch->release(counter);
  uint32_t before = *counter;
  *counter += amount;
  std::vector<Thread *> &waiting = launch->waitingForGrid;
  auto passing = std::partition(waiting.begin(), waiting.end(), [](Thread *thread) { return !mayPass(*thread); });
  std::for_each(passing, waiting.end(), [](Thread *thread) { launch->wake(*thread); });
  waiting.erase(passing, waiting.end());
  return before;
}

TK_EMU_EXPORT void tk_emu_grid_wait(const uint32_t *counter, uint32_t arrival, uint32_t site) {
  Thread &thread = *launch->current;
  thread.counter = counter;
  thread.arrival = arrival;
  if (!mayPass(thread)) {
    launch->waitingForGrid.push_back(&thread);
    launch->block(State::AtGrid, site);
  }
  launch->acquire(counter);
}

TK_EMU_EXPORT void tk_emu_launches_wait(uint32_t site) {
  launch->current->site = site;
  launch->current->hasWaitedForLaunches = true;
}

TK_EMU_EXPORT uint32_t tk_emu_thread() { return launch->current->index; }
TK_EMU_EXPORT uint32_t tk_emu_cta() { return launch->current->cta->index; }

} // namespace trainkernel::emulator
