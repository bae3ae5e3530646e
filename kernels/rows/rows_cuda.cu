#include "kernels/gpu/launchers.h"
#include "kernels/linear/linear_plan.h"
#include "kernels/rows/norm.cuh"

// Rows of a packed weight: the look-up of embeddings, as they are or normed.
namespace clover::kernels::cuda {
namespace {

constexpr int threads = 256, at_once = 8;  // words that a thread has on their way

/// body(at, word) for each word of row `id`, of which there are `count`.  Of 16-bit elements a word is two:
/// inputs 2i and 2i + 1 of an output lie side by side, and panels are padded to 32 inputs.
template <bool Paired, class Body>
__device__ inline void each_word(const uint32_t* panels, int64_t id, int inputs, const Body& body) {
  const int words = Paired ? (inputs + 1) / 2 : inputs, padded = Paired ? (inputs + 31) / 32 * 16 : inputs;
  const uint32_t* panel = panels + id / panel_outputs * padded * panel_outputs + id % panel_outputs;
  for (int first = threadIdx.x; first < words; first += at_once * threads) {
    uint32_t word[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      word[i] = first + i * threads < words ? panel[int64_t{first + i * threads} * panel_outputs] : 0;
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      if (first + i * threads < words) body(first + i * threads, word[i]);
  }
}

/// A block a row.
template <bool Paired>
__global__ void __launch_bounds__(threads)
    gather_rows(const uint32_t* panels, const int64_t* ids, int inputs, void* out) {
  let_next_begin();
  wait_for_last();
  each_word<Paired>(panels, ids[blockIdx.x], inputs, [&](int at, uint32_t word) {
    if constexpr (Paired) {
      uint16_t* to = static_cast<uint16_t*>(out) + blockIdx.x * int64_t{inputs} + 2 * at;
      to[0] = static_cast<uint16_t>(word);
      if (2 * at + 1 < inputs) to[1] = static_cast<uint16_t>(word >> 16);
    } else {
      static_cast<uint32_t*>(out)[blockIdx.x * int64_t{inputs} + at] = word;
    }
  });
}

template <class T>
__device__ inline float half_of(uint32_t word, int half) {
  return to_float(T{static_cast<uint16_t>(word >> 16 * half)});
}

/// A block a row, which lies in shared memory as fp32 while it is summed: each thread's words in order, then
/// the threads'.
template <class T>
__global__ void __launch_bounds__(threads) norm_gathered_rows(const uint32_t* panels, NormCall call) {
  let_next_begin();
  wait_for_last();
  float* row = shared_memory<float>();  // a thread reads what it has written itself
  const int inputs = static_cast<int>(call.width);
  constexpr bool paired = sizeof(T) == 2;
  float squares = 0;
  each_word<paired>(panels, call.chosen[blockIdx.x], inputs, [&](int at, uint32_t word) {
    if constexpr (paired) {
      const float low = half_of<T>(word, 0), high = 2 * at + 1 < inputs ? half_of<T>(word, 1) : 0;
      row[2 * at] = low, row[2 * at + 1] = high;
      squares += low * low + high * high;
    } else {
      row[at] = bits_as<float>(word);
      squares += row[at] * row[at];
    }
  });
  const float inverse = inverse_norm(block_sum<threads / warp_size>(squares), inputs, call.eps);
  constexpr int each = paired ? 2 : 1;
  for (int first = each * threadIdx.x; first < inputs; first += each * threads)
    for (int at = first; at < first + each && at < inputs; ++at)
      store_as(call.out, call.element, blockIdx.x * int64_t{inputs} + at,
               row[at] * inverse * call.weight[at]);
}

}  // namespace

void launch_gather_rows(const void* panels, const int64_t* ids, int64_t rows, int64_t inputs, Element element,
                        void* out, Stream stream) {
  launch("rows", element == Element::fp32 ? gather_rows<false> : gather_rows<true>, dim3(rows), threads, 0,
         stream, static_cast<const uint32_t*>(panels), ids, static_cast<int>(inputs), out);
}

void launch_rms_norm_of_panels(const void* panels, Element element, const NormCall& call, Stream stream) {
  with_element(element, [&](auto zero) {
    launch("rms_norm", norm_gathered_rows<decltype(zero)>, dim3(call.rows), threads, (call.width + 1) * 4,
           stream, static_cast<const uint32_t*>(panels), call);
  });
}

}  // namespace clover::kernels::cuda
