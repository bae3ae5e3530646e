#include "kernels/cpu/threads.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/kernels/paths.h"

namespace clover::kernels {
namespace {

/// A program of somebody else's, in a session of its own, that keeps a core busy.
class BusyProgram {
 public:
  BusyProgram() : child_(::fork()) {
    if (child_ < 0) throw std::runtime_error("fork failed");  // kill(-1) would reach everybody
    if (child_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setsid();
    const std::atomic<bool> enough{false};
    while (!enough) continue;
  }
  BusyProgram(const BusyProgram&) = delete;
  ~BusyProgram() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

 private:
  pid_t child_;
};

/// Seconds of `jobs` jobs of two parts, a few dozen microseconds each.
double seconds_of(int jobs) {
  std::vector<float> numbers(1 << 16, 1.0f);
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<int64_t> sum{0};
  for (int job = 0; job < jobs; ++job)
    parallel_for(std::ssize(numbers), 1 << 15, [&](int64_t first, int64_t last) {
      sum += static_cast<int64_t>(std::accumulate(numbers.begin() + first, numbers.begin() + last, 0.0f));
    });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_EQ(sum, jobs * std::ssize(numbers));
  return seconds;
}

TEST(Threads, EveryPartIsDoneOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    with_threads(threads, [&] {
      for (const int64_t parts : {0, 1, 2, 3, 8, 100, 1024}) {
        std::vector<std::atomic<int>> done(parts);
        for (int round = 0; round < 20; ++round)
          parallel_parts(parts, [&](int64_t part) { ++done.at(part); });
        for (const auto& times : done) EXPECT_EQ(times, 20) << threads << " threads, " << parts << " parts";
      }
    });
  }
  EXPECT_THROW(parallel_parts(1025, [](int64_t) {}), c10::Error);
  EXPECT_THROW(set_threads(0), c10::Error);
}

TEST(Threads, StretchesCoverTheWholeAndAreFew) {
  with_threads(3, [] {
    for (const int64_t count : {0, 1, 5, 64, 1000}) {
      for (const int64_t grain : {1, 7, 400}) {
        std::vector<std::atomic<int>> done(count);
        std::atomic<int64_t> stretches{0};
        parallel_for(count, grain, [&](int64_t begin, int64_t end) {
          ++stretches;
          for (int64_t i = begin; i < end; ++i) ++done.at(i);
        });
        for (const auto& times : done) EXPECT_EQ(times, 1);
        EXPECT_LE(stretches, std::min<int64_t>(3, (count + grain - 1) / grain)) << count << " by " << grain;
      }
    }
  });
}

TEST(Threads, APartAndAnotherThreadMeanwhileComputeAlone) {
  with_threads(4, [] {
    std::atomic<int> inner{0}, other{0};
    parallel_parts(4, [&](int64_t) {
      EXPECT_EQ(threads(), 1);
      parallel_parts(5, [&](int64_t) { ++inner; });
    });
    EXPECT_EQ(threads(), 4);
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 3; ++caller)
      callers.emplace_back([&] {
        for (int job = 0; job < 500; ++job) parallel_parts(6, [&](int64_t) { ++other; });
      });
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(inner, 4 * 5);
    EXPECT_EQ(other, 3 * 500 * 6);
  });
}

TEST(Threads, AnExceptionReachesTheCallerAndTheNextJobRuns) {
  with_threads(2, [] {
    for (const int64_t bad : {0, 1}) {
      EXPECT_THROW(parallel_parts(2,
                                  [&](int64_t part) {
                                    if (part == bad) throw std::runtime_error("no");
                                  }),
                   std::runtime_error);
      std::atomic<int> done{0};
      parallel_parts(2, [&](int64_t) { ++done; });
      EXPECT_EQ(done, 2);
    }
  });
}

TEST(Threads, AThreadThatSleepsIsWokenForTheNextJob) {
  with_threads(2, [] {
    for (int round = 0; round < 5; ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // idle threads stay awake for two
      // Each part waits for the other to begin, so two threads must come.
      std::atomic<int> begun{0};
      parallel_parts(2, [&](int64_t) {
        ++begun;
        while (begun < 2) std::this_thread::yield();
      });
      EXPECT_EQ(begun, 2);
    }
  });
}

// With OpenMP, two of whose threads are then left on one core, each to spin for the other: 7 times and more.
TEST(Threads, OtherProgramsTakeTheirShareAndNoMore) {
  constexpr int jobs = 1000;
  const int count = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 2u, 4u));
  const std::vector<BusyProgram> others(count - 1);
  double alone = 1e9, together = 1e9;
  for (int round = 0; round < 3; ++round) {
    with_threads(1, [&] { alone = std::min(alone, seconds_of(jobs)); });
    with_threads(count, [&] { together = std::min(together, seconds_of(jobs)); });
  }
  EXPECT_LT(together, 4 * alone);
}

}  // namespace
}  // namespace clover::kernels
