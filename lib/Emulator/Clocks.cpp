//===- Clocks.cpp - what a thread knows to be over ------------------------===//

#include "lib/Emulator/Emulator.h"

#include <algorithm>

namespace trainkernel::emulator {

static void merge(Clock &into, const Clock &other) {
  for (size_t i = 0; i < into.size(); ++i)
    into[i] = std::max(into[i], other[i]);
}

// The clock after the current one, which starts as that. Threads that have not come that far keep theirs: barriers let
// none be two behind.
static Clock &advance(Cta &cta) {
  uint32_t next = (cta.clock + 1) % 4;
  cta.clocks[next] = cta.known();
  cta.clock = next;
  Clock &clock = cta.clocks[next];
  if (cta.hasAcquired)
    merge(clock, cta.acquired);
  return clock;
}

void Launch::passBarrier(Cta &cta) {
  const Thread &first = cta.threads.front();
  for (const Thread &thread : cta.threads)
    if (thread.epoch != first.epoch)
      fail("has not passed the same barriers as " + nameOf(first));
  Clock &clock = advance(cta);
  cta.hasAcquired = false;
  uint32_t epoch = clock[cta.index] = first.epoch + 1;
  for (Thread &thread : cta.threads) {
    thread.epoch = epoch;
    thread.known = &clock;
  }
}

void Launch::passCluster(Cluster &cluster) {
  cluster.clock.assign(ctas.size(), 0);
  for (Cta &cta : ctas) {
    if (cta.cluster != &cluster)
      continue;
    merge(cluster.clock, cta.known());
    if (cta.hasAcquired)
      merge(cluster.clock, cta.acquired);
    cluster.clock[cta.index] = std::max(cluster.clock[cta.index], cta.clusterEpoch);
  }
}

// Of the CTA's threads the first one that waits brings it; none can be at the CTA's barrier meanwhile.
void Launch::learnFromCluster(Thread &thread) {
  Cta &cta = *thread.cta;
  if (cta.clusterRounds != cta.cluster->rounds) {
    cta.clusterRounds = cta.cluster->rounds;
    merge(advance(cta), cta.cluster->clock);
  }
  thread.known = &cta.known();
}

void Launch::release(const void *counter) {
  Clock &clock = counters[counter];
  clock.resize(ctas.size());
  merge(clock, *current->known);
}

// Until the next barrier of the CTA, the thread alone knows.
void Launch::acquire(const void *counter) {
  Cta &cta = *current->cta;
  Clock acquired = *current->known;
  Clock &released = counters[counter];
  released.resize(ctas.size());
  merge(acquired, released);
  if (cta.hasAcquired)
    merge(acquired, cta.acquired);
  cta.acquired = std::move(acquired);
  cta.hasAcquired = true;
  current->known = &cta.acquired;
}

} // namespace trainkernel::emulator
