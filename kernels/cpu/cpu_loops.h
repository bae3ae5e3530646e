#pragma once

#include <algorithm>
#include <vector>

#include "kernels/call_of.h"
#include "kernels/cpu/cpu_bodies.h"
#include "kernels/cpu/threads.h"

// What the CPU twins share: the split of rows among threads, and room that is kept.
namespace clover::kernels::cpu {

/// Elements below which waking the other threads costs more than it saves.
constexpr int64_t parallel_elements = 16384;

/// So many floats from the start of a cache line.  Grows once; then calls allocate nothing.
inline float* grown(std::vector<float>& storage, int64_t floats) {
  if (static_cast<int64_t>(storage.size()) < floats + 16) storage.resize(floats + 16);
  const uintptr_t address = reinterpret_cast<uintptr_t>(storage.data());
  return storage.data() + (64 - address % 64) % 64 / sizeof(float);
}

/// body(begin, end) over [0, rows), each row being `width` elements of work.
template <class Body>
void for_rows(int64_t rows, int64_t width, const Body& body) {
  share_out(rows, std::max<int64_t>(1, parallel_elements / std::max<int64_t>(width, 1)), body);
}

/// Each of `rows` rows [width] of x through its norm, to `to`.
inline void norm_rows(const float* x, const float* weight, float eps, int64_t width, void* to,
                      Element element, int64_t rows) {
  const CpuBodies& body = bodies();
  for_rows(rows, width, [&](int64_t begin, int64_t end) {
    body.rms_norm(x, weight, eps, width, to, element, begin, end);
  });
}

}  // namespace clover::kernels::cpu
