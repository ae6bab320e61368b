//===- CPUPool.cpp - The persistent thread pool of CPU steps --------------===//
//
// Runs a compiled step as one SPMD launch: worker 0 is the calling thread, the
// others are persistent threads that wait for work by spinning for a moment
// and then sleeping on a futex. One launch runs at a time in a process.
//
// The C interface is all that leaves this library; `trainkernel.runtime.cpu`
// calls it through ctypes.
//
//===----------------------------------------------------------------------===//

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

extern "C" {
typedef void (*tk_barrier_fn)(void *context);
typedef void (*tk_kernel_fn)(void **params, int64_t worker, int64_t numWorkers, void *context, tk_barrier_fn barrier);
}

namespace {

constexpr int64_t kMaxWorkers = 1024;
/// How long a waiting thread spins before it sleeps: longer than the gap between
/// two steps of a training loop, shorter than anyone notices.
constexpr int64_t kSpinNanoseconds = 50'000;
/// How long of that it spins without offering its CPU to others.
constexpr int64_t kPauseNanoseconds = 4'000;
/// Compiled kernels may keep tiles on the stack; do not depend on `ulimit -s`.
constexpr size_t kStackBytes = size_t(8) << 20;
constexpr size_t kCacheLine = 64;

using Word = std::atomic<uint32_t>;
static_assert(sizeof(Word) == sizeof(uint32_t), "a futex word is 32 bits");

void futexWait(Word &word, uint32_t seen) { syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0); }

void futexWake(Word &word, int count) { syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0); }

void pauseCPU() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

/// Spins while `waiting()` holds, for `kSpinNanoseconds` or, where threads
/// outnumber the CPUs and spinning only delays whom we wait for, not at all.
/// Returns whether the wait is over.
template <typename Waiting> bool spin(bool oversubscribed, Waiting waiting) {
  if (!waiting())
    return true;
  if (oversubscribed)
    return false;
  int64_t start = now(), passed = 0;
  do {
    // Reading the clock costs about 20 ns, a pause 10 to 40 ns.
    for (int i = 0; i < 32; ++i) {
      if (!waiting())
        return true;
      pauseCPU();
    }
    // On a busy machine the thread we wait for may stand behind us in the queue
    // of this very CPU.
    if (passed > kPauseNanoseconds)
      sched_yield();
    passed = now() - start;
  } while (passed < kSpinNanoseconds);
  return !waiting();
}

/// A word that threads wait on until it leaves a value, with the number of
/// those asleep, so that a change costs a system call only if someone sleeps.
struct alignas(kCacheLine) Signal {
  Word value{0};
  Word sleepers{0};

  void waitWhile(uint32_t seen, bool oversubscribed) {
    auto waiting = [&] { return value.load(std::memory_order_acquire) == seen; };
    if (spin(oversubscribed, waiting))
      return;
    // Sequentially consistent on both sides: either the waker sees the sleeper,
    // or the sleeper sees the new value.
    sleepers.fetch_add(1);
    while (value.load() == seen)
      futexWait(value, seen);
    sleepers.fetch_sub(1);
  }

  void advance() {
    value.fetch_add(1);
    if (sleepers.load() != 0)
      futexWake(value, INT_MAX);
  }
};

/// A barrier for any number of threads. The last to arrive opens the next
/// generation; it resets the count first, so that the barrier is reusable at
/// once.
struct Barrier {
  alignas(kCacheLine) std::atomic<int64_t> arrived{0};
  Signal generation;
  int64_t members = 1;
  bool oversubscribed = false;

  void arriveAndWait() {
    if (members == 1)
      return;
    uint32_t current = generation.value.load(std::memory_order_relaxed);
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == members) {
      arrived.store(0, std::memory_order_relaxed);
      generation.advance();
      return;
    }
    if (oversubscribed)
      sched_yield();
    generation.waitWhile(current, oversubscribed);
  }
};

extern "C" void barrierEntry(void *context) { static_cast<Barrier *>(context)->arriveAndWait(); }

/// Kernels run with the default floating-point control word whatever the
/// calling thread has set, so that results do not depend on who computed a
/// tile, nor on a "flush denormals" switch somewhere in the process.
class DefaultFloatingPoint {
#if defined(__x86_64__)
public:
  DefaultFloatingPoint() : saved(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~DefaultFloatingPoint() { _mm_setcsr(saved); }

private:
  unsigned saved;
#endif
};

struct Launch {
  tk_kernel_fn kernel = nullptr;
  void **params = nullptr;
  int64_t numWorkers = 1;
};

int availableCPUs() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    return CPU_COUNT(&set);
  long count = sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 ? int(count) : 1;
}

class Pool {
public:
  /// Runs one launch; returns 0 or an errno value.
  int run(const Launch &next) {
    std::lock_guard<std::mutex> lock(mutex);
    if (int error = startWorkers(next.numWorkers - 1))
      return error;
    if (launch.numWorkers != next.numWorkers)
      oversubscribed.store(next.numWorkers > availableCPUs(), std::memory_order_relaxed);
    launch = next;
    barrier.members = next.numWorkers;
    barrier.oversubscribed = oversubscribed.load(std::memory_order_relaxed);
    running.store(next.numWorkers - 1, std::memory_order_relaxed);
    uint32_t current = done.value.load(std::memory_order_relaxed);
    for (int64_t i = 0; i + 1 < next.numWorkers; ++i)
      workers[i]->ticket.advance();
    work(0);
    if (next.numWorkers > 1)
      done.waitWhile(current, barrier.oversubscribed);
    return 0;
  }

private:
  struct Worker {
    Pool *pool;
    int64_t index;
    Signal ticket;
  };

  void work(int64_t index) {
    DefaultFloatingPoint guard;
    launch.kernel(launch.params, index, launch.numWorkers, &barrier, barrierEntry);
  }

  static void *workerMain(void *argument) {
    Worker &self = *static_cast<Worker *>(argument);
    Pool &pool = *self.pool;
    for (uint32_t seen = 0;; ++seen) {
      self.ticket.waitWhile(seen, pool.oversubscribed.load(std::memory_order_relaxed));
      pool.work(self.index);
      if (pool.running.fetch_sub(1, std::memory_order_acq_rel) == 1)
        pool.done.advance();
    }
    return nullptr;
  }

  int startWorkers(int64_t count) {
    for (; numStarted < count; ++numStarted) {
      std::unique_ptr<Worker> worker(new (std::nothrow) Worker);
      if (!worker)
        return ENOMEM;
      worker->pool = this;
      worker->index = numStarted + 1;
      if (int error = startThread(worker.get()))
        return error;
      workers[numStarted] = worker.release();
    }
    return 0;
  }

  static int startThread(Worker *worker) {
    // Signals belong to the threads of the host program.
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_t attributes;
    if (int error = pthread_attr_init(&attributes))
      return error;
    pthread_attr_setstacksize(&attributes, kStackBytes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    int error = pthread_create(&thread, &attributes, workerMain, worker);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&attributes);
    return error;
  }

  std::mutex mutex;
  Worker *workers[kMaxWorkers - 1];
  int64_t numStarted = 0;
  Launch launch;
  Barrier barrier;
  std::atomic<bool> oversubscribed{false};
  alignas(kCacheLine) std::atomic<int64_t> running{0};
  Signal done;
};

/// The pool of this process. It is never destroyed: its workers may still sleep
/// in it when the process ends.
std::atomic<Pool *> current{nullptr};

Pool *pool() {
  Pool *found = current.load(std::memory_order_acquire);
  if (found)
    return found;
  Pool *made = new (std::nothrow) Pool;
  if (!made || current.compare_exchange_strong(found, made))
    return made;
  delete made; // Another thread was first.
  return found;
}

/// A forked child has none of the threads and perhaps a locked mutex: it leaves
/// the old pool alone and builds its own at its first launch.
void forgetPool() { current.store(nullptr, std::memory_order_release); }

[[maybe_unused]] const int forkHandler = pthread_atfork(nullptr, nullptr, forgetPool);

} // namespace

/// Runs `kernel` on `numWorkers` threads at once and returns when all are done:
/// 0, or an errno value (EINVAL: numWorkers is not in 1..1024; EAGAIN: the
/// system gives no more threads; ENOMEM), in which case nothing ran.
extern "C" __attribute__((visibility("default"))) int tk_cpu_run(tk_kernel_fn kernel, void **params,
                                                                 int64_t numWorkers) {
  if (!kernel || numWorkers < 1 || numWorkers > kMaxWorkers)
    return EINVAL;
  Pool *mine = pool();
  return mine ? mine->run({kernel, params, numWorkers}) : ENOMEM;
}

/// The version of this interface, which the Python side checks.
extern "C" __attribute__((visibility("default"))) int tk_cpu_version() { return 1; }
