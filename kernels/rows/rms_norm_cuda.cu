#include "kernels/rows/norm.cuh"
#include "kernels/rows/rms_norm.h"
#include "kernels/weights/packed_rows.cuh"

namespace clover::kernels {
using namespace cuda;
namespace {

/// Four numbers of a row of x plus the SiLU of those of `added`.
template <bool Aligned>
__device__ inline Vec4<float> load_sum(const float* x, const float* added, int at, int width) {
  Vec4<float> sum = load_vec4<Aligned>(x, at, width);
  if (added == nullptr) return sum;
  const Vec4<float> a = load_vec4<Aligned>(added, at, width);
  for (int i = 0; i < 4; ++i) sum.x[i] += silu_one(a.x[i]);
  return sum;
}

/// One block for each row; a thread keeps its first `Held` Vec4s in registers while the block sums squares.
/// The weight, which no kernel of a pass writes, is loaded from before the kernel ahead has ended: it comes
/// from memory, x from the cache.
template <class T, int Held, bool Aligned>
__global__ void __launch_bounds__(norm_threads) rms_norm_rows(NormCall call) {
  launch_dependents();
  const int width = static_cast<int>(call.width);
  const int first = 4 * threadIdx.x, rest = first + Held * norm_stride;
  const float* weight = call.weight;
  Vec4<float> held[Held], weights[Held];
#pragma unroll
  for (int i = 0; i < Held; ++i) weights[i] = load_vec4<Aligned>(weight, first + i * norm_stride, width);
  wait_for_prior_kernel();
  const int64_t row = blockIdx.x;
  const float* x = call.x + (call.chosen == nullptr ? row : call.chosen[row]) * width;
  const float* added = call.added == nullptr ? nullptr : call.added + row * width;
  T* out = static_cast<T*>(call.out) + row * width;
#pragma unroll
  for (int i = 0; i < Held; ++i) held[i] = load_sum<Aligned>(x, added, first + i * norm_stride, width);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < Held; ++i) squares += sum_of_squares(held[i]);
  for (int at = rest; at < width; at += norm_stride)
    squares += sum_of_squares(load_sum<Aligned>(x, added, at, width));
  const float inverse = inverse_norm(block_sum<norm_warps>(squares), width, call.eps);
#pragma unroll
  for (int i = 0; i < Held; ++i)
    store_vec4<Aligned>(scaled(held[i], inverse, weights[i]), out, first + i * norm_stride, width);
  for (int at = rest; at < width; at += norm_stride)
    store_vec4<Aligned>(
        scaled(load_sum<Aligned>(x, added, at, width), inverse, load_vec4<Aligned>(weight, at, width)), out,
        at, width);
}

template <class T>
__device__ inline float half_of(uint32_t word, int half) {
  return to_float(T{static_cast<uint16_t>(word >> 16 * half)});
}

/// One block for each row, which is kept in shared memory as fp32 while its squares are summed: each thread's
/// in order, then those of the threads.
template <class T>
__global__ void __launch_bounds__(gather_threads) norm_gathered_rows(const uint32_t* panels, NormCall call) {
  launch_dependents();
  wait_for_prior_kernel();
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
  const float inverse = inverse_norm(block_sum<gather_threads / warp_size>(squares), inputs, call.eps);
  constexpr int each = paired ? 2 : 1;
  for (int first = each * threadIdx.x; first < inputs; first += each * gather_threads)
    for (int at = first; at < first + each && at < inputs; ++at)
      store_as(call.out, call.element, blockIdx.x * int64_t{inputs} + at,
               row[at] * inverse * call.weight[at]);
}

/// Launches the norm of rows of a packed weight, those that `call.chosen` names.
void launch_gathered(const NormCall& call, Stream stream) {
  with_element(call.stored, [&](auto zero) {
    launch("rms_norm", norm_gathered_rows<decltype(zero)>, dim3(call.rows), gather_threads,
           (call.width + 1) * 4, stream, static_cast<const uint32_t*>(call.panels), call);
  });
}

}  // namespace

void run_on_gpu(const NormCall& call, const GpuContext& context) {
  if (call.panels != nullptr) return launch_gathered(call, context.stream);
  with_element(call.element, [&](auto zero) {
    using T = decltype(zero);
    const auto start = [&](auto aligned) {
      constexpr bool is_aligned = decltype(aligned)::value;
      // A narrow row keeps fewer registers, so that more blocks run at once.
      const auto kernel = call.width <= 2 * norm_stride   ? rms_norm_rows<T, 2, is_aligned>
                          : call.width <= 4 * norm_stride ? rms_norm_rows<T, 4, is_aligned>
                                                          : rms_norm_rows<T, 8, is_aligned>;
      launch("rms_norm", kernel, dim3(call.rows), norm_threads, 0, context.stream, call);
    };
    with_alignment(start, call.width, call.x, call.added, call.weight, static_cast<const T*>(call.out));
  });
}

}  // namespace clover::kernels
