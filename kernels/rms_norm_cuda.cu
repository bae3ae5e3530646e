#include "kernels/device/cuda.h"
#include "kernels/device/launchers.h"
#include "kernels/device/quads.h"

namespace clover::kernels::cuda {
namespace {

constexpr int warps = 8, threads = warps * warp_size;
constexpr int stride = 4 * threads;  // what the block reads at once

__device__ inline float sum_of_squares(const Quad<float>& x) {
  return (x.x[0] * x.x[0] + x.x[1] * x.x[1]) + (x.x[2] * x.x[2] + x.x[3] * x.x[3]);
}

__device__ inline Quad<float> scaled(const Quad<float>& x, float scale, const Quad<float>& weight) {
  Quad<float> y;
  for (int i = 0; i < 4; ++i) y.x[i] = x.x[i] * scale * weight.x[i];
  return y;
}

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
__global__ void __launch_bounds__(threads) rms_norm_rows(NormCall call) {
  let_next_begin();
  const int width = static_cast<int>(call.width);
  const int first = 4 * threadIdx.x, rest = first + Held * stride;
  const float* weight = call.weight;
  Quad<float> held[Held], weights[Held];
#pragma unroll
  for (int i = 0; i < Held; ++i) weights[i] = load_quad<Aligned>(weight, first + i * stride, width);
  wait_for_last();
  const int64_t row = blockIdx.x;
  const float* x = call.x + (call.chosen == nullptr ? row : call.chosen[row]) * width;
  const float* added = call.added == nullptr ? nullptr : call.added + row * width;
  T* out = static_cast<T*>(call.out) + row * width;
#pragma unroll
  for (int i = 0; i < Held; ++i) held[i] = load_sum<Aligned>(x, added, first + i * stride, width);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < Held; ++i) squares += sum_of_squares(held[i]);
  for (int at = rest; at < width; at += stride)
    squares += sum_of_squares(load_sum<Aligned>(x, added, at, width));
  const float mean = block_sum<warps>(squares) / static_cast<float>(width);
  const float inverse = 1.0f / sqrtf(mean + call.eps);
#pragma unroll
  for (int i = 0; i < Held; ++i)
    store_quad<Aligned>(scaled(held[i], inverse, weights[i]), out, first + i * stride, width);
  for (int at = rest; at < width; at += stride)
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
      const auto kernel = call.width <= 2 * stride   ? rms_norm_rows<T, 2, quads>
                          : call.width <= 4 * stride ? rms_norm_rows<T, 4, quads>
                                                     : rms_norm_rows<T, 8, quads>;
      launch("rms_norm", kernel, dim3(call.rows), threads, 0, stream, call);
    };
    with_alignment(start, call.width, call.x, call.added, call.weight, static_cast<const T*>(call.out));
  });
}

}  // namespace clover::kernels::cuda
