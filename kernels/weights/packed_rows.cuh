#pragma once

#include "kernels/gpu/device.cuh"
#include "kernels/weights/panels.h"

// Reads one row of a packed weight by a block of threads.
namespace clover::kernels::cuda {
namespace {

constexpr int gather_threads = 256, words_at_once = 8;  // words that a thread loads at a time

/// Calls body(at, word) for each word of row `id`. Of 16-bit elements a word is two: inputs 2i and 2i + 1 of
/// an output are side by side, and panels are padded to 32 inputs.
template <bool Paired, class Body>
__device__ inline void each_word(const uint32_t* panels, int64_t id, int inputs, const Body& body) {
  const int words = Paired ? (inputs + 1) / 2 : inputs, padded = Paired ? (inputs + 31) / 32 * 16 : inputs;
  const uint32_t* panel = panels + id / panel_outputs * padded * panel_outputs + id % panel_outputs;
  for (int first = threadIdx.x; first < words; first += words_at_once * gather_threads) {
    uint32_t word[words_at_once];
#pragma unroll
    for (int i = 0; i < words_at_once; ++i)
      word[i] =
          first + i * gather_threads < words ? panel[int64_t{first + i * gather_threads} * panel_outputs] : 0;
#pragma unroll
    for (int i = 0; i < words_at_once; ++i)
      if (first + i * gather_threads < words) body(first + i * gather_threads, word[i]);
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
