#pragma once

#include <algorithm>
#include <cstdint>

namespace clover::kernels {

/// Threads that a kernel of the CPU computes with where it is called, the caller among them: at first one a
/// core that the process may use, or OMP_NUM_THREADS; never more than 1024; one within a part that was
/// shared out.  A forked child computes with one, whatever this says.
int64_t threads();
void set_threads(int64_t count);

namespace team {
using Part = void (*)(const void* body, int64_t part);
void run(int64_t parts, Part part, const void* body);
}  // namespace team

/// body(part) for every part of [0, parts), each by whichever thread comes first, the calling one among them;
/// returns when all are done.  Nobody waits for a thread that has taken no part: where other programs keep
/// some of the cores busy, the threads that do run share the work.  Within another part, or while another
/// thread's parts are under way, the caller does all of them.  The first exception of a body is thrown again
/// here; the other parts may then be done or not.  0 <= parts <= 1024.
template <class Body>
void in_parts(int64_t parts, const Body& body) {
  team::run(
      parts, [](const void* of, int64_t part) { (*static_cast<const Body*>(of))(part); }, &body);
}

/// body(begin, end) over [0, count) in stretches: at most one a thread, and one for each `grain`.
template <class Body>
void share_out(int64_t count, int64_t grain, const Body& body) {
  const int64_t parts = std::min(threads(), (count + grain - 1) / grain);
  if (parts <= 1) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
  in_parts(parts, [&](int64_t part) { body(count * part / parts, count * (part + 1) / parts); });
}

/// While it lives, LibTorch's operators compute with the calling thread alone.  After each operator that
/// shares its work LibTorch's other threads spin for milliseconds, on the cores that kernels need next.
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
