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

/// A block a row, of which a thread holds its first `Held` quads while the block sums; the weight is under
/// way meanwhile.
template <class T, int Held, bool Aligned>
__global__ void __launch_bounds__(threads)
    rms_norm_rows(const float* all, const float* weight, float eps, int width, T* all_out) {
  let_next_begin();
  wait_for_last();
  const int64_t row = blockIdx.x;
  const float* x = all + row * width;
  T* out = all_out + row * width;
  const int first = 4 * threadIdx.x, rest = first + Held * stride;
  Quad<float> held[Held], weights[Held];
#pragma unroll
  for (int i = 0; i < Held; ++i) {
    held[i] = load_quad<Aligned>(x, first + i * stride, width);
    weights[i] = load_quad<Aligned>(weight, first + i * stride, width);
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < Held; ++i) squares += sum_of_squares(held[i]);
  for (int at = rest; at < width; at += stride) squares += sum_of_squares(load_quad<Aligned>(x, at, width));
  const float mean = block_sum<warps>(squares) / static_cast<float>(width);
  const float inverse = 1.0f / sqrtf(mean + eps);
#pragma unroll
  for (int i = 0; i < Held; ++i)
    store_quad<Aligned>(scaled(held[i], inverse, weights[i]), out, first + i * stride, width);
  for (int at = rest; at < width; at += stride) {
    const Quad<float> x_here = load_quad<Aligned>(x, at, width), w = load_quad<Aligned>(weight, at, width);
    store_quad<Aligned>(scaled(x_here, inverse, w), out, at, width);
  }
}

}  // namespace

void launch_rms_norm(const float* x, const float* weight, float eps, int64_t rows, int64_t width, void* out,
                     Element element, Stream stream) {
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    T* typed = static_cast<T*>(out);
    const auto start = [&](auto aligned) {
      constexpr bool quads = decltype(aligned)::value;
      // No more registers than a narrow row needs, so that more rows are under way.
      const auto kernel = width <= 2 * stride   ? rms_norm_rows<T, 2, quads>
                          : width <= 4 * stride ? rms_norm_rows<T, 4, quads>
                                                : rms_norm_rows<T, 8, quads>;
      launch("rms_norm", kernel, dim3(rows), threads, 0, stream, x, weight, eps, static_cast<int>(width),
             typed);
    };
    with_alignment(start, width, x, weight, typed);
  });
}

}  // namespace clover::kernels::cuda
