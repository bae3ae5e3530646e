#include "kernels/gpu/launchers.h"
#include "kernels/rows/norm.cuh"

namespace clover::kernels::cuda {
namespace {

/// Four numbers of a row of x, and what is added to it.
template <bool Aligned>
__device__ inline Quad<float> load_sum(const float* x, const float* added, int at, int width) {
  Quad<float> sum = load_quad<Aligned>(x, at, width);
  if (added == nullptr) return sum;
  const Quad<float> a = load_quad<Aligned>(added, at, width);
  for (int i = 0; i < 4; ++i) sum.x[i] += silu_one(a.x[i]);
  return sum;
}

/// A block a row, of which a thread holds its first `Held` quads while the block sums.  The weight, which no
/// kernel of a pass writes, is under way from before the last kernel has ended: it comes from memory, x from
/// the cache.
template <class T, int Held, bool Aligned>
__global__ void __launch_bounds__(norm_threads) rms_norm_rows(NormCall call) {
  let_next_begin();
  const int width = static_cast<int>(call.width);
  const int first = 4 * threadIdx.x, rest = first + Held * norm_stride;
  const float* weight = call.weight;
  Quad<float> held[Held], weights[Held];
#pragma unroll
  for (int i = 0; i < Held; ++i) weights[i] = load_quad<Aligned>(weight, first + i * norm_stride, width);
  wait_for_last();
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
    store_quad<Aligned>(scaled(held[i], inverse, weights[i]), out, first + i * norm_stride, width);
  for (int at = rest; at < width; at += norm_stride)
    store_quad<Aligned>(
        scaled(load_sum<Aligned>(x, added, at, width), inverse, load_quad<Aligned>(weight, at, width)), out,
        at, width);
}

}  // namespace

void launch_rms_norm(const NormCall& call, Stream stream) {
  with_element(call.element, [&](auto zero) {
    using T = decltype(zero);
    const auto start = [&](auto aligned) {
      constexpr bool quads = decltype(aligned)::value;
      // No more registers than a narrow row needs, so that more rows are under way.
      const auto kernel = call.width <= 2 * norm_stride   ? rms_norm_rows<T, 2, quads>
                          : call.width <= 4 * norm_stride ? rms_norm_rows<T, 4, quads>
                                                          : rms_norm_rows<T, 8, quads>;
      launch("rms_norm", kernel, dim3(call.rows), norm_threads, 0, stream, call);
    };
    with_alignment(start, call.width, call.x, call.added, call.weight, static_cast<const T*>(call.out));
  });
}

}  // namespace clover::kernels::cuda
