#include "kernels/gpu/device.cuh"
#include "kernels/gpu/vec4.cuh"
#include "kernels/rows/activation_call.h"

namespace clover::kernels {
using namespace cuda;
namespace {

constexpr int threads = 256;
constexpr int warps = threads / warp_size;

int64_t vec4s_of(int64_t count) {
  return (count + 3) / 4;
}
int64_t blocks_for(int64_t vec4s) {
  return (vec4s + threads - 1) / threads;
}
template <bool Aligned>
__global__ void __launch_bounds__(threads) add_silu_all(float* z, const float* a, int64_t count) {
  launch_dependents();
  wait_for_prior_kernel();
  const int64_t at = 4 * (static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x);
  Vec4<float> sum = load_vec4<Aligned>(z, at, count);
  const Vec4<float> added = load_vec4<Aligned>(a, at, count);
  for (int i = 0; i < 4; ++i) sum.x[i] += silu_one(added.x[i]);
  store_vec4<Aligned>(sum, z, at, count);
}

struct Products {
  float qq = 0, kk = 0, qk = 0;
};

/// Every thread of the block gets the block's sums.
__device__ inline Products block_products(const Products& mine) {
  __shared__ float parts[3][warps];
  const float sums[3] = {warp_sum(mine.qq), warp_sum(mine.kk), warp_sum(mine.qk)};
  if (threadIdx.x % warp_size == 0)
    for (int i = 0; i < 3; ++i) parts[i][threadIdx.x / warp_size] = sums[i];
  __syncthreads();
  Products all;
  for (int warp = 0; warp < warps; ++warp) {
    all.qq += parts[0][warp];
    all.kk += parts[1][warp];
    all.qk += parts[2][warp];
  }
  return all;
}

/// One block for each group of each row. KV: the type that keys and values are stored as.
template <class T, class KV, bool Aligned>
__global__ void __launch_bounds__(threads) add_gated_slices(GatedCall call) {
  launch_dependents();
  wait_for_prior_kernel();
  const int64_t groups = call.groups, row = blockIdx.x / groups, width = call.width;
  const int slice = static_cast<int>(width / groups);
  const int64_t within = blockIdx.x % groups * slice, begin = row * width + within;
  const int64_t kv_row = call.kv_rows != nullptr ? call.kv_rows[row] : row;
  const float* q = call.q + begin;
  const KV *k = static_cast<const KV*>(call.kv) + 2 * kv_row * width + within, *v = k + width;
  const int64_t chosen = call.chosen != nullptr ? call.chosen[row] : row;
  const float* s = call.s + chosen * width + within;
  float* out = call.out + begin;
  T* rounded = static_cast<T*>(call.rounded) + begin;
  Products mine;
  for (int at = 4 * threadIdx.x; at < slice; at += 4 * threads) {
    const Vec4<float> a = load_vec4<Aligned>(q, at, slice), b = load_vec4<Aligned>(k, at, slice);
    for (int i = 0; i < 4; ++i) {
      mine.qq += a.x[i] * a.x[i];
      mine.kk += b.x[i] * b.x[i];
      mine.qk += a.x[i] * b.x[i];
    }
  }
  const Products all = block_products(mine);
  const float eps = call.eps, q_norm = sqrtf(all.qq), k_norm = sqrtf(all.kk);
  const float gate = all.qk / ((q_norm > eps ? q_norm : eps) * (k_norm > eps ? k_norm : eps));
  for (int at = 4 * threadIdx.x; at < slice; at += 4 * threads) {
    Vec4<float> sum = load_vec4<Aligned>(s, at, slice);
    const Vec4<float> gated = load_vec4<Aligned>(v, at, slice);
    for (int i = 0; i < 4; ++i) {
      const float added = gated.x[i] * gate;
      sum.x[i] += call.silu ? silu_one(added) : added;
    }
    store_vec4<Aligned>(sum, out, at, slice);
    store_vec4<Aligned>(sum, rounded, at, slice);
  }
}

}  // namespace

void run_on_gpu(const AddSiluCall& call, const GpuContext& context) {
  const auto start = [&](auto aligned) {
    launch("add_silu_", add_silu_all<decltype(aligned)::value>, dim3(blocks_for(vec4s_of(call.count))),
           threads, 0, context.stream, call.z, call.a, call.count);
  };
  with_alignment(start, call.count, call.z, call.a);
}

void run_on_gpu(const GatedCall& call, const GpuContext& context) {
  const auto start = [&](auto rounded, auto stored) {
    using T = decltype(rounded);
    using KV = decltype(stored);
    const auto aligned_or_not = [&](auto aligned) {
      launch("add_gated", add_gated_slices<T, KV, decltype(aligned)::value>, dim3(call.rows * call.groups),
             threads, 0, context.stream, call);
    };
    with_alignment(aligned_or_not, call.width / call.groups, call.s, call.q, static_cast<const KV*>(call.kv),
                   static_cast<const float*>(call.out), static_cast<const T*>(call.rounded));
  };
  with_element(call.element, [&](auto rounded) {
    call.kv_rows != nullptr ? start(rounded, rounded) : start(rounded, float{});
  });
}

}  // namespace clover::kernels
