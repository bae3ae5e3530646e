#include "kernels/cpu/threads.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <omp.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

// A thread pool in place of OpenMP's, whose threads spin at a barrier until the last one arrives.  If another
// program is busy, Linux may run two of OpenMP's threads on one core: one spins through its time slice while
// the other, which has work left, waits for the core.  Decoding then falls to a hundredth of its speed.
namespace clover::kernels {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t max_parts = 1024;  // of a job, which is one call of parallel_parts; also of threads

// How long an idle thread polls before it sleeps.  The next product of a step comes within microseconds, and
// the work between two steps takes less than a millisecond.
constexpr std::chrono::milliseconds polling_time{2};
// Each poll is followed by a pause, 40 to 140 cycles on x86.
// An idle thread lets others have its core after so many polls, 3 to 10 microseconds.
constexpr int polls_between_yields = 256;
// So does the caller while it waits for parts of other threads, after 20 to 80 microseconds.
constexpr int polls_before_yields = 2048;

thread_local bool in_a_part = false;  // whether this thread runs a part

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Team {
 public:
  int64_t size() const { return size_.load(std::memory_order_relaxed); }
  void resize(int64_t size) { size_ = std::clamp<int64_t>(size, 1, max_parts); }

  void run(int64_t parts, team::PartFunction function, const void* body) {
    const std::unique_lock lock(busy_, std::try_to_lock);
    if (!lock) return run_here(parts, function, body);
    start_helpers();
    function_ = function;
    body_ = body;
    failure_ = nullptr;
    taken_.store(0, std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
    const uint64_t job = ((job_.load(std::memory_order_relaxed) >> parts_bits) + 1) << parts_bits | parts;
    job_.store(job);
    if (sleepers_.load() > 0) {
      sleepers_.store(0);
      wake_ups_.fetch_add(1);
      wake_ups_.notify_all();
    }
    take_parts(job, 0);
    for (int64_t polls = 0; done_.load(std::memory_order_acquire) != parts; ++polls) {
      pause();
      if (polls >= polls_before_yields) ::sched_yield();  // an unfinished part may need this core
    }
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  static void run_here(int64_t parts, team::PartFunction function, const void* body) {
    for (int64_t part = 0; part < parts; ++part) function(body, part);
  }

 private:
  // A job is one word: its number in the high bits and its count of parts in the low ones.
  static constexpr int parts_bits = 11;
  static_assert(max_parts < 1 << parts_bits);

  /// The last job in which a thread took the part of this number. Jobs only grow, so it needs no reset.
  struct alignas(64) Claim {
    std::atomic<uint64_t> job{0};
  };

  /// Starts the threads that are missing. If the system allows no more, the existing ones do the work.
  void start_helpers() try {
    for (; !thread_limit_reached_ && helpers_ < size() - 1; ++helpers_)
      std::thread([this, index = helpers_ + 1] { run_helper(index); }).detach();
  } catch (const std::system_error&) {
    thread_limit_reached_ = true;
  }

  /// What helper thread `index` runs.
  [[noreturn]] void run_helper(int64_t index) {
    at::get_num_threads();   // the first call applies LibTorch's own settings to the thread
    omp_set_num_threads(1);  // LibTorch's operators inside a part run on this thread alone
    for (uint64_t seen = 0;;) {
      seen = next_job(seen);
      if (index < size()) take_parts(seen, index);
    }
  }

  /// Runs parts of `job` that no thread has taken yet.  Thread `index` begins with part `index`, so that
  /// threads rarely compete.  A late thread is harmless: all parts of a job that has ended were taken, and a
  /// job cannot end while a part that was taken still runs.
  void take_parts(uint64_t job, int64_t index) {
    const int64_t parts = job & ((1 << parts_bits) - 1);
    for (int64_t i = 0; i < parts && taken_.load(std::memory_order_relaxed) < parts; ++i) {
      const int64_t part = (index + i) % parts;
      uint64_t last = claims_[part].job.load(std::memory_order_relaxed);
      if (last >= job || !claims_[part].job.compare_exchange_strong(last, job)) continue;  // it is taken
      taken_.fetch_add(1, std::memory_order_relaxed);
      in_a_part = true;
      try {
        function_(body_, part);
      } catch (...) {
        const std::lock_guard lock(failure_mutex_);
        if (!failure_) failure_ = std::current_exception();
      }
      in_a_part = false;
      done_.fetch_add(1, std::memory_order_release);
    }
  }

  /// Waits for a job other than `seen`, the last one that this thread knows: polls, then sleeps.
  uint64_t next_job(uint64_t seen) {
    for (Clock::time_point since = Clock::now();;) {
      for (int poll = 0; poll < polls_between_yields; ++poll) {
        const uint64_t job = job_.load(std::memory_order_acquire);
        if (job != seen) return job;
        pause();
      }
      if (Clock::now() - since < polling_time) {
        ::sched_yield();  // other threads of this process may need this core
        continue;
      }
      const uint32_t wake_ups = wake_ups_.load();
      ++sleepers_;
      if (job_.load() == seen) wake_ups_.wait(wake_ups);
      since = Clock::now();
    }
  }

  std::mutex busy_;      // held while a job runs, by the thread that called run
  int64_t helpers_ = 0;  // threads started so far
  bool thread_limit_reached_ = false;
  // Threads to use, the caller included. At first as many as OpenMP would use: OMP_NUM_THREADS, or one for
  // each core that the process may use.
  std::atomic<int64_t> size_{std::clamp<int64_t>(omp_get_max_threads(), 1, max_parts)};
  // The present job. Written before job_; only threads that have taken a part read them.
  team::PartFunction function_ = nullptr;
  const void* body_ = nullptr;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;  // the first exception of a part
  alignas(64) std::atomic<uint64_t> job_{0};
  alignas(64) std::atomic<int64_t> taken_{0};      // parts taken; a late thread may read the next job's count
  alignas(64) std::atomic<int64_t> done_{0};       // parts finished
  alignas(64) std::atomic<uint32_t> wake_ups_{0};  // sleeping threads wait for it to change
  std::atomic<int64_t> sleepers_{0};               // threads that went to sleep since the last wake-up
  std::array<Claim, max_parts> claims_{};
};

/// Never destroyed, because its threads run until the process ends.
Team& the_team() {
  static Team& team = *new Team;
  return team;
}

}  // namespace

int64_t threads() {
  return in_a_part ? 1 : the_team().size();
}

void set_threads(int64_t count) {
  TORCH_CHECK(count >= 1, "set_threads: ", count, " threads, expected at least 1.");
  the_team().resize(count);
}

OneTorchThread::OneTorchThread() : previous_threads_(at::get_num_threads()) {
  the_team();  // reads its size from OpenMP, so it must exist before the next line
  // Not at::set_num_threads, which would also resize and restart LibTorch's own thread pools.
  omp_set_num_threads(1);
}

OneTorchThread::~OneTorchThread() {
  omp_set_num_threads(previous_threads_);
}

void team::run(int64_t parts, PartFunction function, const void* body) {
  TORCH_CHECK(parts <= max_parts, "parallel_parts: ", parts, " parts, expected at most ", max_parts, ".");
  if (parts <= 1 || threads() == 1) return Team::run_here(parts, function, body);
  the_team().run(parts, function, body);
}

}  // namespace clover::kernels
