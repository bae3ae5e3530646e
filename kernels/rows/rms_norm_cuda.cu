#include "kernels/rows/norm.cuh"
#include "kernels/rows/rms_norm.h"
#include "kernels/weights/packed_rows.cuh"

namespace clover::kernels {
using namespace cuda;
namespace {

/// Four numbers of the row x, from number `first` on, plus the SiLU of those of the row `silu_input` unless
/// it is null.
template <bool Aligned>
__device__ inline Vec4<float> load_sum(const float* x, const float* silu_input, int first, int width) {
  Vec4<float> sum = load_vec4<Aligned>(x, first, width);
  if (silu_input == nullptr) return sum;
  const Vec4<float> a = load_vec4<Aligned>(silu_input, first, width);
  for (int i = 0; i < 4; ++i) sum.x[i] += silu_scalar(a.x[i]);
  return sum;
}

/// One block for each row.  A thread keeps its first `Held` Vec4s of x in registers while the block sums
/// squares, and reads the others twice.  It loads weights before the kernel ahead has ended, which is safe
/// because no kernel of a pass writes them: they come from global memory, x usually from the L2 cache.
template <class T, int Held, bool Aligned>
__global__ void __launch_bounds__(norm_threads) rms_norm_rows(NormCall call) {
  launch_dependents();
  const int width = static_cast<int>(call.width);
  const int first = 4 * threadIdx.x, first_not_held = first + Held * norm_stride;
  const float* weight = call.weight;
  Vec4<float> numbers[Held], weights[Held];
#pragma unroll
  for (int i = 0; i < Held; ++i) weights[i] = load_vec4<Aligned>(weight, first + i * norm_stride, width);
  wait_for_prior_kernel();
  const int64_t row = blockIdx.x;
  const float* x = call.x + (call.x_rows == nullptr ? row : call.x_rows[row]) * width;
  const float* silu_input = call.silu_input == nullptr ? nullptr : call.silu_input + row * width;
  T* out = static_cast<T*>(call.out) + row * width;
#pragma unroll
  for (int i = 0; i < Held; ++i)
    numbers[i] = load_sum<Aligned>(x, silu_input, first + i * norm_stride, width);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < Held; ++i) squares += sum_of_squares(numbers[i]);
  for (int i = first_not_held; i < width; i += norm_stride)
    squares += sum_of_squares(load_sum<Aligned>(x, silu_input, i, width));
  const float inverse = inverse_norm(block_sum<norm_warps>(squares), width, call.eps);
#pragma unroll
  for (int i = 0; i < Held; ++i)
    store_vec4<Aligned>(scaled(numbers[i], inverse, weights[i]), out, first + i * norm_stride, width);
  for (int i = first_not_held; i < width; i += norm_stride)
    store_vec4<Aligned>(
        scaled(load_sum<Aligned>(x, silu_input, i, width), inverse, load_vec4<Aligned>(weight, i, width)),
        out, i, width);
}

/// The lower (half = 0) or upper (half = 1) 16-bit number of a word.
template <class T>
__device__ inline float half_of(uint32_t word, int half) {
  return to_float(T{static_cast<uint16_t>(word >> 16 * half)});
}

/// Norms of rows call.x_rows of `panels`, a PackedWeight's of type T; one block for each row.  The row is
/// kept in shared memory as fp32 while its squares are summed.
template <class T>
__global__ void __launch_bounds__(gather_threads) norm_gathered_rows(const uint32_t* panels, NormCall call) {
  launch_dependents();
  wait_for_prior_kernel();
  float* row = shared_memory<float>();  // no barrier: each thread reads only what it has written
  const int inputs = static_cast<int>(call.width);
  constexpr bool paired = sizeof(T) == 2;
  float squares = 0;
  each_word<paired>(panels, call.x_rows[blockIdx.x], inputs, [&](int index, uint32_t word) {
    if constexpr (paired) {
      const float low = half_of<T>(word, 0), high = 2 * index + 1 < inputs ? half_of<T>(word, 1) : 0;
      row[2 * index] = low, row[2 * index + 1] = high;
      squares += low * low + high * high;
    } else {
      row[index] = bits_as<float>(word);
      squares += row[index] * row[index];
    }
  });
  const float inverse = inverse_norm(block_sum<gather_threads / warp_size>(squares), inputs, call.eps);
  constexpr int per_word = paired ? 2 : 1;
  for (int first = per_word * threadIdx.x; first < inputs; first += per_word * gather_threads)
    for (int i = first; i < first + per_word && i < inputs; ++i)
      store_as(call.out, call.element, blockIdx.x * int64_t{inputs} + i, row[i] * inverse * call.weight[i]);
}

void launch_gathered(const NormCall& call, Stream stream) {
  with_element(call.panel_element, [&](auto zero) {
    // Room for one number more than the row has: of an odd width the last word's second half is written too.
    launch("rms_norm", norm_gathered_rows<decltype(zero)>, dim3(call.rows), gather_threads,
           (call.width + 1) * sizeof(float), stream, static_cast<const uint32_t*>(call.panels), call);
  });
}

}  // namespace

void run_on_gpu(const NormCall& call, const GpuContext& context) {
  if (call.panels != nullptr) return launch_gathered(call, context.stream);
  with_element(call.element, [&](auto zero) {
    using T = decltype(zero);
    const auto launch_rows = [&](auto aligned) {
      constexpr bool is_aligned = decltype(aligned)::value;
      // A narrow row needs fewer registers, so that more blocks run at once.
      const auto kernel = call.width <= 2 * norm_stride   ? rms_norm_rows<T, 2, is_aligned>
                          : call.width <= 4 * norm_stride ? rms_norm_rows<T, 4, is_aligned>
                                                          : rms_norm_rows<T, 8, is_aligned>;
      launch("rms_norm", kernel, dim3(call.rows), norm_threads, 0, context.stream, call);
    };
    with_alignment(launch_rows, call.width, call.x, call.silu_input, call.weight,
                   static_cast<const T*>(call.out));
  });
}

}  // namespace clover::kernels
