//===- Emulator.h - GPU kernels on the CPU, for tests -----------*- C++ -*-===//
//
// All threads of all CTAs are fibers of one thread of the system. A fiber runs until it meets others: at a barrier, in
// an op that a warp does together, at a counter. Who runs next is random, by a seed. See docs/building.md.
//
// Which accesses are ordered is known by clocks: a thread counts its barriers in an epoch, and knows for each CTA up to
// which epoch all that its threads did lies behind. Two accesses of which at least one writes, by threads neither of
// which knows of the other's, are an error.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_EMULATOR_EMULATOR_H
#define TRAINKERNEL_LIB_EMULATOR_EMULATOR_H

#include <cstdint>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#define TK_EMU_EXPORT extern "C" __attribute__((visibility("default")))

namespace trainkernel::emulator {

struct Cta;
struct Warp;

/// What a launch is told; emulator.py has the same.
struct LaunchSpec {
  void (*kernel)(void **params);
  void **params;
  const char *sites;
  const uint64_t *addresses, *sizes;
  const char *const *names;
  /// Of each buffer, whether it holds something before the launch.
  const uint8_t *filled;
  /// Of the order of things, and of the errors of approximations, which are the same in each launch of a step.
  uint64_t seed, errorSeed;
  uint32_t numBuffers, granule, grid, cluster, threads, sharedBytes, overlapsLaunches;
};

enum class State : uint8_t { Ready, AtWarp, AtBarrier, AtCluster, AtGrid, Done };

/// An asynchronous copy under way.
struct Copy {
  char *target;
  const char *source;
  uint32_t bytes, site;
  bool isDone;
};

/// For each CTA, the epoch before which all that its threads did is known.
using Clock = std::vector<uint32_t>;

struct Thread {
  void *stackPointer = nullptr;
  Cta *cta = nullptr;
  Warp *warp = nullptr;
  const Clock *known = nullptr;
  /// Where it is, for messages.
  uint32_t site = 0;
  uint32_t epoch = 1;
  uint16_t index = 0;
  State state = State::Ready;
  bool hasWaitedForLaunches = false, hasArrivedAtCluster = false;
  /// Rounds of the cluster's barrier that were complete when it arrived.
  uint32_t clusterRound = 0;
  /// What it brought to an op of its warp.
  const void *operands = nullptr;
  void *results = nullptr;
  std::vector<Copy> copies;
  const uint32_t *counter = nullptr;
  uint32_t arrival = 0;
  /// The first epoch in which it wrote to shared memory what no fence lets asynchronous units see; 0 of none.
  uint32_t unpublishedEpoch = 0;

  uint32_t lane() const { return index % 32; }
};

/// An op that threads of a warp do together, of which some have arrived.
struct WarpOp {
  uint32_t mask, arrived, site, kind;
};

/// A product that a warp, with three others, has started. `addends` are those of lane 0, lane 1, ...
struct Product {
  uint64_t a, b;
  uint32_t columns, kind, site, first;
  std::vector<uint32_t> addends;
  bool isCommitted = false, isDone = false;
};

struct Warp {
  Thread *threads = nullptr;
  Cta *cta = nullptr;
  uint32_t index = 0, all = 0, ready = 0, exited = 0;
  std::vector<WarpOp> ops;
  std::vector<Product> products;
  /// Of the products that are under way, for each lane.
  std::vector<uint32_t> results[32];
  bool isFenced = false;
};

struct Cluster {
  /// Arrivals of this round, and rounds that are complete.
  uint32_t arrived = 0, rounds = 0;
  /// What all of its threads knew when the last round was complete.
  Clock clock;
};

struct Cta {
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  Cluster *cluster = nullptr;
  char *shared = nullptr;
  uint32_t index = 0, readyWarps = 0, place = ~0u;
  uint32_t arrived = 0, exited = 0, barrierSite = 0;
  /// The epoch that its arrival at the cluster's barrier began, and the rounds of which it knows.
  uint32_t clusterEpoch = 0, clusterRounds = 0;
  /// What its threads know; a thread may still have the one before, or what it alone has acquired.
  Clock clocks[4], acquired;
  uint32_t clock = 0;
  bool hasAcquired = false;

  const Clock &known() const { return clocks[clock]; }
};

/// An access to a granule of memory; epoch 0 is none.
struct Access {
  uint32_t thread, epoch, site;
};

struct Cell {
  Access write, read;
};

struct Buffer {
  uint64_t begin = 0, end = 0;
  std::string name;
  Cell *cells = nullptr;
  bool isShared = false, isFilled = false;
};

/// A write where another thread has written without a barrier, and what was there before.
struct Doubt {
  const Buffer *buffer;
  uint64_t address;
  Access other;
  char bytes[8];
};

class Launch {
public:
  Launch(const LaunchSpec &spec, std::string &message);
  ~Launch();
  /// Whether it ended well; the message says what went wrong.
  bool run();

  /// Ends the launch with a message about the current thread. Does not return.
  [[noreturn]] void fail(const std::string &text);
  std::string nameOf(const Thread &thread) const;
  std::string nameOfSite(uint32_t site) const;
  uint64_t random(uint64_t count) { return count <= 1 ? 0 : generator() % count; }

  // Scheduling: Launch.cpp.
  /// Lets others run until somebody wakes the current thread.
  void block(State state, uint32_t site);
  void wake(Thread &thread);

  // Memory: Memory.cpp.
  void access(const void *address, uint32_t bytes, uint32_t alignment, uint32_t site, bool isWrite);
  /// After each write: two threads may write the same.
  void checkWritten(uint32_t site);
  /// Where a copy writes, and that nobody may touch it.
  void markUnderWay(const Copy &copy, bool isUnderWay);
  /// Fails where asynchronous units do not see what threads have written.
  void checkPublished(const void *address, uint32_t bytes, uint32_t site);
  /// Copies.cpp: makes some of the current thread's copies, or all.
  void makeCopies(Thread &thread, bool all);

  // Clocks: Clocks.cpp.
  void passBarrier(Cta &cta);
  void passCluster(Cluster &cluster);
  void learnFromCluster(Thread &thread);
  void release(const void *counter);
  void acquire(const void *counter);
  bool isOrdered(const Access &before, const Thread &thread) const {
    return before.epoch < (*thread.known)[before.thread >> threadBits & ctaMask];
  }
  static constexpr uint32_t threadBits = 10, ctaMask = 0xFFFF, severalReaders = 1u << 31, underWay = 1u << 30;
  static uint32_t idOf(const Thread &thread) { return thread.cta->index << threadBits | thread.index; }

  const LaunchSpec &spec;
  Thread *current = nullptr;
  std::vector<Cta> ctas;
  std::vector<Thread *> waitingForGrid;
  uint64_t ticks = 0;

private:
  void makeBuffers();
  void makeThreads();
  Buffer &find(uint64_t address, uint32_t bytes, uint32_t site, bool isWrite);
  void check(Buffer &buffer, uint64_t address, uint32_t bytes, uint32_t site, bool isWrite);
  [[noreturn]] void failOutside(uint64_t address, uint32_t bytes, uint32_t site, bool isWrite);
  [[noreturn]] void failRace(const Buffer &buffer, uint64_t address, const Access &other, bool otherWrites,
                             uint32_t site, bool isWrite);
  void runCta(Cta &cta);
  void runThread(Thread &thread);
  void endThread();
  void reportDeadlock();
  static void startThread();

  std::string &message;
  std::mt19937_64 generator;
  std::vector<std::string> sites;
  std::vector<Cluster> clusters;
  std::vector<Buffer> buffers;
  std::vector<Doubt> doubts;
  Buffer *lastBuffer = nullptr;
  std::unordered_map<const void *, Clock> counters;
  std::vector<Cta *> readyCtas;
  char *sharedMemory = nullptr;
  uint64_t sharedStride = 0, sharedTotal = 0, alive = 0;
  void *schedulerStack = nullptr;
  bool hasFailed = false;
};

/// The launch that runs.
extern Launch *launch;

/// WarpOps.cpp: waits for all threads of the mask to be in the same op; the last one computes it for all.
void meet(uint32_t mask, uint32_t kind, uint32_t site, const void *operands, void *results,
          void (*compute)(Warp &, uint32_t mask, uint32_t kind));

/// WarpOps.cpp: elements of 16 bits, and the sum of exact products and an addend as tensor cores make it.
float fromBf16(uint32_t bits);
float fromF16(uint32_t bits);
float sumOf(const double *terms, int count);

/// Fiber.cpp: saves where this fiber is, goes on where another was.
extern "C" void tk_emu_switch(void **save, void *target);
/// A stack whose first switch calls `start`.
void *prepareStack(char *low, uint64_t bytes, void (*start)());
/// Memory for stacks, kept from launch to launch.
char *stackMemory(uint64_t count);
/// Code that is not optimised keeps all its values there.
inline constexpr uint64_t stackBytes = 256 << 10;
/// Whether a stack has grown beyond its memory.
bool hasOverflowed(const char *low);

} // namespace trainkernel::emulator

#endif
