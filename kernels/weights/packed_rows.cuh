#pragma once

#include "kernels/gpu/device.cuh"
#include "kernels/weights/panels.h"

// Reads one row of a PackedWeight with a block of gather_threads threads.
namespace clover::kernels::cuda {
namespace {

constexpr int gather_threads = 256;
constexpr int words_at_once = 8;  // 32-bit words that a thread loads before it uses them

/// Calls body(index, word) for each 32-bit word of row `id`; a thread gets every gather_threads'th word.
/// Paired: the elements have 16 bits, word i holds inputs 2i and 2i + 1, and panels are padded to 32 inputs.
/// Otherwise word i is input i.
template <bool Paired, class Body>
__device__ inline void each_word(const uint32_t* panels, int64_t id, int inputs, const Body& body) {
  const int words = Paired ? (inputs + 1) / 2 : inputs;
  const int padded_words = Paired ? (inputs + 31) / 32 * 16 : inputs;
  const uint32_t* row = panels + id / panel_outputs * padded_words * panel_outputs + id % panel_outputs;
  for (int first = threadIdx.x; first < words; first += words_at_once * gather_threads) {
    uint32_t word[words_at_once];
#pragma unroll
    for (int i = 0; i < words_at_once; ++i)
      word[i] =
          first + i * gather_threads < words ? row[int64_t{first + i * gather_threads} * panel_outputs] : 0;
#pragma unroll
    for (int i = 0; i < words_at_once; ++i)
      if (first + i * gather_threads < words) body(first + i * gather_threads, word[i]);
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
