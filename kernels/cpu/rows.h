#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/threads.h"

// Splits rows among threads, and reuses scratch memory between calls.
namespace clover::kernels::cpu {

/// A thread gets at least so many elements: for fewer, waking it costs more time than it saves.
constexpr int64_t min_elements_per_thread = 16384;

/// Grows `storage` if it has no room for `floats` floats, and returns them, aligned to a cache line of 64
/// bytes. It never shrinks, so most calls allocate nothing.
inline float* grow_scratch(std::vector<float>& storage, int64_t floats) {
  if (static_cast<int64_t>(storage.size()) < floats + 16) storage.resize(floats + 16);
  const uintptr_t address = reinterpret_cast<uintptr_t>(storage.data());
  return storage.data() + (64 - address % 64) % 64 / sizeof(float);
}

/// Calls body(begin, end) for ranges of [0, rows) on several threads; a row is `width` elements of work.
template <class Body>
void for_rows(int64_t rows, int64_t width, const Body& body) {
  parallel_for(rows, std::max<int64_t>(1, min_elements_per_thread / std::max<int64_t>(width, 1)), body);
}

}  // namespace clover::kernels::cpu
