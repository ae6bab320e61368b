//===- Launch.cpp - one launch of a kernel --------------------------------===//

#include "lib/Emulator/Emulator.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <sstream>
#include <sys/mman.h>
#include <xmmintrin.h>

namespace trainkernel::emulator {

Launch *launch = nullptr;

Launch::Launch(const LaunchSpec &spec, std::string &message)
    : spec(spec), ctas(spec.grid), message(message), generator(spec.seed), clusters(spec.grid / spec.cluster) {
  std::istringstream lines(spec.sites);
  for (std::string line; std::getline(lines, line);)
    sites.push_back(line);
  makeThreads();
  makeBuffers();
}

Launch::~Launch() {
  for (Buffer &buffer : buffers)
    munmap(buffer.cells, ((buffer.end - buffer.begin + spec.granule - 1) / spec.granule + 1) * sizeof(Cell));
  munmap(sharedMemory, sharedTotal);
}

static char *stackOf(char *stacks, const Launch &launch, const Thread &thread) {
  return stacks + (static_cast<uint64_t>(thread.cta->index) * launch.spec.threads + thread.index) * stackBytes;
}

void Launch::makeThreads() {
  char *stacks = stackMemory(static_cast<uint64_t>(spec.grid) * spec.threads);
  if (!stacks)
    throw std::bad_alloc();
  alive = static_cast<uint64_t>(spec.grid) * spec.threads;
  for (uint32_t c = 0; c < spec.grid; ++c) {
    Cta &cta = ctas[c];
    cta.index = c;
    cta.cluster = &clusters[c / spec.cluster];
    for (Clock &clock : cta.clocks)
      clock.resize(spec.grid);
    cta.threads.resize(spec.threads);
    cta.warps.resize((spec.threads + 31) / 32);
    for (uint32_t w = 0; w < cta.warps.size(); ++w) {
      cta.warps[w].threads = &cta.threads[32 * w];
      cta.warps[w].cta = &cta;
      cta.warps[w].index = w;
    }
    for (uint32_t t = 0; t < spec.threads; ++t) {
      Thread &thread = cta.threads[t];
      thread.index = t;
      thread.cta = &cta;
      thread.warp = &cta.warps[t / 32];
      thread.warp->all |= 1u << t % 32;
      thread.known = &cta.known();
      // Stacks that begin at one place of a page would share few lines of the caches.
      uint64_t shift = t % 32 * 192;
      thread.stackPointer = prepareStack(stackOf(stacks, *this, thread), stackBytes - shift, startThread);
      wake(thread);
    }
  }
}

void Launch::wake(Thread &thread) {
  thread.state = State::Ready;
  thread.warp->ready |= 1u << thread.lane();
  Cta &cta = *thread.cta;
  cta.readyWarps |= 1u << thread.warp->index;
  if (cta.place == ~0u) {
    cta.place = readyCtas.size();
    readyCtas.push_back(&cta);
  }
}

void Launch::block(State state, uint32_t site) {
  Thread &thread = *current;
  thread.state = state;
  thread.site = site;
  tk_emu_switch(&thread.stackPointer, schedulerStack);
  if (!thread.copies.empty())
    makeCopies(thread, /*all=*/false);
}

void Launch::startThread() {
  launch->spec.kernel(launch->spec.params);
  launch->endThread();
}

void Launch::endThread() {
  Thread &thread = *current;
  Cta &cta = *thread.cta;
  if (!thread.copies.empty())
    fail("ends, and nobody has waited for its " + nameOfSite(thread.copies.front().site));
  if (!thread.warp->products.empty())
    fail("ends, and nobody has waited for its " + nameOfSite(thread.warp->products.front().site));
  for (const WarpOp &op : thread.warp->ops)
    if (op.mask >> thread.lane() & 1)
      fail("ends, while threads of its warp wait for it in " + nameOfSite(op.site));
  if (cta.arrived)
    fail("ends, while threads of its CTA wait for it at the " + nameOfSite(cta.barrierSite));
  if (thread.hasArrivedAtCluster)
    fail("ends without having waited for its cluster");
  ++cta.exited;
  thread.warp->exited |= 1u << thread.lane();
  thread.state = State::Done;
  --alive;
  tk_emu_switch(&thread.stackPointer, schedulerStack);
}

void Launch::runThread(Thread &thread) {
  current = &thread;
  thread.warp->ready &= ~(1u << thread.lane());
  tk_emu_switch(&schedulerStack, thread.stackPointer);
  char *stacks = stackMemory(0);
  if (hasOverflowed(stackOf(stacks, *this, thread)) && !hasFailed) {
    hasFailed = true;
    message = nameOf(thread) + " needs more than " + std::to_string(stackBytes) + " bytes of stack";
  }
}

// Its warps in a random order, their threads one after the other from a random one on.
void Launch::runCta(Cta &cta) {
  while (cta.readyWarps && !hasFailed) {
    uint32_t warps[32], count = 0;
    for (uint32_t bits = cta.readyWarps; bits; bits &= bits - 1)
      warps[count++] = __builtin_ctz(bits);
    Warp &warp = cta.warps[warps[random(count)]];
    uint32_t start = random(32);
    while (warp.ready && !hasFailed) {
      uint32_t turned = warp.ready >> start | warp.ready << (32 - start) % 32;
      if (start == 0)
        turned = warp.ready;
      runThread(warp.threads[(__builtin_ctz(turned) + start) % 32]);
    }
    cta.readyWarps &= ~(1u << warp.index);
    if (random(16) == 0)
      return;
  }
}

bool Launch::run() {
  while (alive && !hasFailed) {
    if (readyCtas.empty()) {
      reportDeadlock();
      break;
    }
    Cta &cta = *readyCtas[random(readyCtas.size())];
    runCta(cta);
    if (cta.readyWarps)
      continue;
    readyCtas[cta.place] = readyCtas.back();
    readyCtas[cta.place]->place = cta.place;
    readyCtas.pop_back();
    cta.place = ~0u;
  }
  return !hasFailed;
}

std::string Launch::nameOf(const Thread &thread) const {
  return "thread " + std::to_string(thread.index) + " of CTA " + std::to_string(thread.cta->index);
}

std::string Launch::nameOfSite(uint32_t site) const { return site < sites.size() ? sites[site] : "?"; }

void Launch::fail(const std::string &text) {
  message = nameOf(*current) + ": " + text;
  hasFailed = true;
  void *ignored;
  tk_emu_switch(&ignored, schedulerStack);
  __builtin_unreachable();
}

void Launch::reportDeadlock() {
  std::map<std::string, std::pair<uint64_t, const Thread *>> groups;
  for (const Cta &cta : ctas)
    for (const Thread &thread : cta.threads) {
      std::string state = thread.state == State::Done ? "have ended" : "wait in " + nameOfSite(thread.site);
      auto &[count, first] = groups[state];
      if (!count++)
        first = &thread;
    }
  message = "deadlock:";
  const char *separator = " ";
  for (const auto &[state, group] : groups) {
    message +=
        separator + std::to_string(group.first) + " threads, the first of them " + nameOf(*group.second) + ", " + state;
    separator = "; ";
  }
  hasFailed = true;
}

/// Runs a kernel; 0 where it ended well. The message of an error ends with a NUL.
TK_EMU_EXPORT int32_t tk_emu_launch(const LaunchSpec *spec, char *message, uint64_t capacity) {
  unsigned mode = _mm_getcsr();
  // Rounding to nearest, subnormal numbers as they are.
  _mm_setcsr(0x1F80);
  std::string text;
  bool isGood = false;
  try {
    Launch made(*spec, text);
    launch = &made;
    isGood = made.run();
  } catch (const std::bad_alloc &) {
    text = "no memory for the launch";
  }
  launch = nullptr;
  _mm_setcsr(mode);
  text.resize(std::min<uint64_t>(text.size(), capacity - 1));
  std::memcpy(message, text.c_str(), text.size() + 1);
  return isGood ? 0 : 1;
}

} // namespace trainkernel::emulator
