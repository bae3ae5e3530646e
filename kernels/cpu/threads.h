#pragma once

#include <algorithm>
#include <cstdint>

namespace clover::kernels {

/// How many threads a CPU kernel uses where it is called, the caller included: at first one for each core
/// that the process may use, or OMP_NUM_THREADS; never more than 1024. Within a part of parallel_parts it is
/// one, and in a forked child kernels use one, whatever this says.
int64_t threads();
void set_threads(int64_t count);

namespace team {
using Part = void (*)(const void* body, int64_t part);
void run(int64_t parts, Part part, const void* body);
}  // namespace team

/// Calls body(part) for every part of [0, parts), each on whichever thread is free first, the calling one
/// among them, and returns when all are done. No thread is waited for that has not taken a part: where other
/// programs keep some cores busy, the threads that do run share the work. Within another part, or while
/// another thread's parts run, the caller does all of them. The first exception of a body is rethrown here;
/// other parts may then be done or not. 0 <= parts <= 1024.
template <class Body>
void parallel_parts(int64_t parts, const Body& body) {
  team::run(
      parts, [](const void* of, int64_t part) { (*static_cast<const Body*>(of))(part); }, &body);
}

/// Calls body(begin, end) over [0, count) in contiguous ranges: at most one for each thread, and none much
/// smaller than `grain`.
template <class Body>
void parallel_for(int64_t count, int64_t grain, const Body& body) {
  const int64_t parts = std::min(threads(), (count + grain - 1) / grain);
  if (parts <= 1) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
  parallel_parts(parts, [&](int64_t part) { body(count * part / parts, count * (part + 1) / parts); });
}

/// While it lives, LibTorch's operators use the calling thread alone. After each operator that uses more,
/// LibTorch's other threads spin for milliseconds on the cores that kernels need next.
class OneTorchThread {
 public:
  OneTorchThread();
  ~OneTorchThread();
  OneTorchThread(const OneTorchThread&) = delete;
  OneTorchThread& operator=(const OneTorchThread&) = delete;

 private:
  int before_;
};

}  // namespace clover::kernels
