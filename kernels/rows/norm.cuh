#pragma once

#include "kernels/gpu/device.cuh"
#include "kernels/gpu/vec4.cuh"

// How a row is normed, whichever kernel does it: 256 threads take four numbers each in turn and sum their
// squares, the lanes of a warp in a tree, the warps one after the other.
namespace clover::kernels::cuda {
namespace {

constexpr int norm_warps = 8, norm_threads = norm_warps * warp_size;
constexpr int norm_stride = 4 * norm_threads;  // what they read at once

__device__ inline float sum_of_squares(const Vec4<float>& x) {
  return (x.x[0] * x.x[0] + x.x[1] * x.x[1]) + (x.x[2] * x.x[2] + x.x[3] * x.x[3]);
}

/// What RMSNorm scales numbers by whose squares have that sum.
__device__ inline float inverse_norm(float squares, int width, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(width) + eps);
}

__device__ inline Vec4<float> scaled(const Vec4<float>& x, float scale, const Vec4<float>& weight) {
  Vec4<float> y;
  for (int i = 0; i < 4; ++i) y.x[i] = x.x[i] * scale * weight.x[i];
  return y;
}

}  // namespace
}  // namespace clover::kernels::cuda
