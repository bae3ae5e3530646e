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

// OpenMP's threads spin until the last of them has come.  Beside one busy program Linux may leave two of
// them on one core, each spinning through its share of the time while the other has the work: decoding then
// falls to a hundredth of its speed.
namespace clover::kernels {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t most_parts = 1024;  // of a job, and threads

// Idle threads stay awake so long, for a step's next product comes within microseconds, and its host's work
// takes less than a millisecond.
constexpr std::chrono::milliseconds patience{2};
// As an x86's pause takes 40 to 140 cycles:
constexpr int looks_between_yields = 256;  // of an idle thread: 3 to 10 microseconds
constexpr int looks_before_yields = 2048;  // of one that waits for others' parts: 20 to 80

thread_local bool in_a_part = false;

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
  void resize(int64_t size) { size_ = std::clamp<int64_t>(size, 1, most_parts); }

  void run(int64_t parts, team::Part part, const void* body) {
    const std::unique_lock alone(busy_, std::try_to_lock);
    if (!alone) return run_here(parts, part, body);
    find_helpers();
    part_ = part;
    body_ = body;
    failure_ = nullptr;
    taken_.store(0, std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
    const uint64_t job = ((job_.load(std::memory_order_relaxed) >> parts_bits) + 1) << parts_bits | parts;
    job_.store(job);
    if (sleepers_.load() > 0) {
      sleepers_.store(0);
      bell_.fetch_add(1);
      bell_.notify_all();
    }
    take_parts(job, 0);
    for (int64_t looks = 0; done_.load(std::memory_order_acquire) != parts; ++looks) {
      pause();
      if (looks >= looks_before_yields) ::sched_yield();  // who has the rest may need this core
    }
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  static void run_here(int64_t parts, team::Part part, const void* body) {
    for (int64_t i = 0; i < parts; ++i) part(body, i);
  }

 private:
  // A job is its number and, in the low bits, how many parts it has.
  static constexpr int parts_bits = 11;
  static_assert(most_parts < 1 << parts_bits);

  struct alignas(64) Claim {
    std::atomic<uint64_t> job{0};  // the last whose part this was
  };

  /// Where no more threads can be had, those there are do the work.
  void find_helpers() try {
    for (; !no_more_ && helpers_ < size() - 1; ++helpers_)
      std::thread([this, index = helpers_ + 1] { help(index); }).detach();
  } catch (const std::system_error&) {
    no_more_ = true;
  }

  [[noreturn]] void help(int64_t index) {
    at::get_num_threads();   // LibTorch's own settings of a thread, which come with its first question
    omp_set_num_threads(1);  // its operators within a part have this thread alone
    for (uint64_t seen = 0;;) {
      seen = next_job(seen);
      if (index < size()) take_parts(seen, index);
    }
  }

  /// Parts of `job` that nobody has taken, from the index'th thread's own on.  A part that is taken keeps its
  /// job from ending; one of a job that has ended was taken then, so what comes too late takes none.
  void take_parts(uint64_t job, int64_t index) {
    const int64_t parts = job & ((1 << parts_bits) - 1);
    for (int64_t i = 0; i < parts && taken_.load(std::memory_order_relaxed) < parts; ++i) {
      const int64_t part = (index + i) % parts;
      uint64_t last = claims_[part].job.load(std::memory_order_relaxed);
      if (last >= job || !claims_[part].job.compare_exchange_strong(last, job)) continue;
      taken_.fetch_add(1, std::memory_order_relaxed);
      in_a_part = true;
      try {
        part_(body_, part);
      } catch (...) {
        const std::lock_guard lock(failing_);
        if (!failure_) failure_ = std::current_exception();
      }
      in_a_part = false;
      done_.fetch_add(1, std::memory_order_release);
    }
  }

  uint64_t next_job(uint64_t seen) {
    for (Clock::time_point since = Clock::now();;) {
      for (int look = 0; look < looks_between_yields; ++look) {
        const uint64_t job = job_.load(std::memory_order_acquire);
        if (job != seen) return job;
        pause();
      }
      if (Clock::now() - since < patience) {
        ::sched_yield();  // the others of this program may need this core
        continue;
      }
      const uint32_t bell = bell_.load();
      ++sleepers_;
      if (job_.load() == seen) bell_.wait(bell);
      since = Clock::now();
    }
  }

  std::mutex busy_;  // held by who has a job under way
  int64_t helpers_ = 0;
  bool no_more_ = false;
  // As many as OpenMP would: a core each that the process may use, or OMP_NUM_THREADS.
  std::atomic<int64_t> size_{std::clamp<int64_t>(omp_get_max_threads(), 1, most_parts)};
  // Of the job, written before job_ and read by those who have taken a part.
  team::Part part_ = nullptr;
  const void* body_ = nullptr;
  std::mutex failing_;
  std::exception_ptr failure_;
  alignas(64) std::atomic<uint64_t> job_{0};
  alignas(64) std::atomic<int64_t> taken_{0};  // of its parts; a helper that comes late may see another job's
  alignas(64) std::atomic<int64_t> done_{0};
  alignas(64) std::atomic<uint32_t> bell_{0};
  std::atomic<int64_t> sleepers_{0};  // since the bell last rang
  std::array<Claim, most_parts> claims_{};
};

/// Lives as long as the process: its threads are never told to stop.
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

OneTorchThread::OneTorchThread() : before_(at::get_num_threads()) {
  the_team();  // whose size is not to be this one
  // at::set_num_threads would also set, and restart, LibTorch's pools beside OpenMP's.
  omp_set_num_threads(1);
}

OneTorchThread::~OneTorchThread() {
  omp_set_num_threads(before_);
}

void team::run(int64_t parts, Part part, const void* body) {
  TORCH_CHECK(parts <= most_parts, "parallel_parts: ", parts, " parts, expected at most ", most_parts, ".");
  if (parts <= 1 || threads() == 1) return Team::run_here(parts, part, body);
  the_team().run(parts, part, body);
}

}  // namespace clover::kernels
