#include "kernels/device/cuda.h"
#include "kernels/device/launchers.h"

namespace clover::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / warp_size;

dim3 blocks_for(int64_t count) {
  return dim3((count + threads - 1) / threads);
}

template <class T>
__global__ void silu_mul_all(const float* gate_up, int64_t rows, int64_t width, T* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= rows * width) return;
  const float* gate = gate_up + i / width * 2 * width + i % width;
  from_float(silu_one(gate[0]) * gate[width], out[i]);
}

__global__ void add_silu_all(float* z, const float* a, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i < count) z[i] += silu_one(a[i]);
}

/// A block a group of a row.
__global__ void __launch_bounds__(threads)
    add_gated_slices(float* s, const float* q, const float* k, const float* v, int64_t slice, float eps) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * slice;
  float qq = 0, kk = 0, qk = 0;
  for (int64_t i = at + threadIdx.x; i < at + slice; i += threads) {
    qq += q[i] * q[i];
    kk += k[i] * k[i];
    qk += q[i] * k[i];
  }
  const float q_norm = sqrtf(block_sum<warps>(qq)), k_norm = sqrtf(block_sum<warps>(kk));
  const float gate = block_sum<warps>(qk) / ((q_norm > eps ? q_norm : eps) * (k_norm > eps ? k_norm : eps));
  for (int64_t i = at + threadIdx.x; i < at + slice; i += threads) s[i] += silu_one(v[i] * gate);
}

}  // namespace

void launch_silu_mul(const float* gate_up, int64_t rows, int64_t width, void* out, Element element,
                     Stream stream) {
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    launch("silu_mul", silu_mul_all<T>, blocks_for(rows * width), threads, 0, stream, gate_up, rows, width,
           static_cast<T*>(out));
  });
}

void launch_add_silu(float* z, const float* a, int64_t count, Stream stream) {
  launch("add_silu_", add_silu_all, blocks_for(count), threads, 0, stream, z, a, count);
}

void launch_add_gated(float* s, const float* q, const float* k, const float* v, int64_t rows, int64_t width,
                      int64_t groups, float eps, Stream stream) {
  launch("add_gated_", add_gated_slices, dim3(rows * groups), threads, 0, stream, s, q, k, v, width / groups,
         eps);
}

}  // namespace clover::kernels::cuda
