#pragma once

#include "kernels/gpu/device.cuh"
#include "kernels/gpu/vec4.cuh"

// RMSNorm of a row by a block of 256 threads, shared by all kernels that norm rows. The order in which
// squares are added is part of it: each thread adds the squares of its Vec4s, which lie 1024 numbers apart,
// and then block_sum adds the threads' sums.
namespace clover::kernels::cuda {
namespace {

constexpr int norm_warps = 8, norm_threads = norm_warps * warp_size;
constexpr int norm_stride = 4 * norm_threads;  // numbers that a block reads at once

__device__ inline float sum_of_squares(const Vec4<float>& x) {
  return (x.x[0] * x.x[0] + x.x[1] * x.x[1]) + (x.x[2] * x.x[2] + x.x[3] * x.x[3]);
}

/// 1 / sqrt(mean square + eps) of a row of `width` numbers, where `squares` is the sum of their squares.
__device__ inline float inverse_norm(float squares, int width, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(width) + eps);
}

/// x * scale * weight, number by number.
__device__ inline Vec4<float> scaled(const Vec4<float>& x, float scale, const Vec4<float>& weight) {
  Vec4<float> y;
  for (int i = 0; i < 4; ++i) y.x[i] = x.x[i] * scale * weight.x[i];
  return y;
}

}  // namespace
}  // namespace clover::kernels::cuda
