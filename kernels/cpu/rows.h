#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/threads.h"

// What CPU kernels share: the split of rows among threads, and scratch memory that is kept.
namespace clover::kernels::cpu {

/// Elements below which waking the other threads costs more than it saves.
constexpr int64_t parallel_elements = 16384;

/// `floats` floats of `storage`, from the start of a cache line.  The storage grows and never shrinks, so
/// that most calls allocate nothing.
inline float* grown(std::vector<float>& storage, int64_t floats) {
  if (static_cast<int64_t>(storage.size()) < floats + 16) storage.resize(floats + 16);
  const uintptr_t address = reinterpret_cast<uintptr_t>(storage.data());
  return storage.data() + (64 - address % 64) % 64 / sizeof(float);
}

/// body(begin, end) over [0, rows) by several threads, each row being `width` elements of work.
template <class Body>
void for_rows(int64_t rows, int64_t width, const Body& body) {
  parallel_for(rows, std::max<int64_t>(1, parallel_elements / std::max<int64_t>(width, 1)), body);
}

}  // namespace clover::kernels::cpu
