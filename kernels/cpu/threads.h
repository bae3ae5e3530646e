#pragma once

#include <algorithm>
#include <cstdint>

namespace clover::kernels {

/// How many threads a CPU kernel may use if it is called here, the caller included; 1 to 1024. The default is
/// OMP_NUM_THREADS, or one for each core that the process may use. Inside a part of parallel_parts it is 1.
/// A forked child computes on one thread, whatever this says.
int64_t threads();
/// Changes the number for the whole process; c10::Error unless count >= 1.
void set_threads(int64_t count);

// The type-erased form of parallel_parts below.
namespace team {
using PartFunction = void (*)(const void* body, int64_t part);
void run(int64_t parts, PartFunction function, const void* body);
}  // namespace team

/// Calls body(part) for every part of [0, parts), each on the next free thread, and returns when all calls
/// have returned. The calling thread takes parts too. It never waits for a thread that has taken none: if
/// other programs keep some cores busy, the threads that run share the work. Inside another part, or while
/// parts of another thread run, the caller does all parts itself. The first exception of a body is rethrown
/// here; the other parts may or may not have run then. 0 <= parts <= 1024.
template <class Body>
void parallel_parts(int64_t parts, const Body& body) {
  team::run(
      parts, [](const void* erased, int64_t part) { (*static_cast<const Body*>(erased))(part); }, &body);
}

/// Splits [0, count) into contiguous ranges, at most one for each thread and none much smaller than `grain`,
/// and calls body(begin, end) for each of them in parallel.
template <class Body>
void parallel_for(int64_t count, int64_t grain, const Body& body) {
  const int64_t parts = std::min(threads(), (count + grain - 1) / grain);
  if (parts <= 1) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
  parallel_parts(parts, [&](int64_t part) { body(count * part / parts, count * (part + 1) / parts); });
}

/// A scope in which LibTorch's operators run on the calling thread alone. Otherwise LibTorch's other threads
/// spin for milliseconds after each operator, on the cores that kernels need next.
class OneTorchThread {
 public:
  OneTorchThread();
  ~OneTorchThread();
  OneTorchThread(const OneTorchThread&) = delete;
  OneTorchThread& operator=(const OneTorchThread&) = delete;

 private:
  int previous_threads_;  // LibTorch's, which the destructor restores
};

}  // namespace clover::kernels
