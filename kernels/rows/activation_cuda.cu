#include "kernels/gpu/device.cuh"
#include "kernels/gpu/vec4.cuh"
#include "kernels/rows/activation_call.h"

namespace clover::kernels {
using namespace cuda;
namespace {

constexpr int threads = 256;
constexpr int warps = threads / warp_size;

/// Vec4s that hold `count` numbers.
int64_t vec4s_of(int64_t count) {
  return (count + 3) / 4;
}
int64_t blocks_for(int64_t vec4s) {
  return (vec4s + threads - 1) / threads;
}

/// One thread for each Vec4.
template <bool Aligned>
__global__ void __launch_bounds__(threads) add_silu_all(float* z, const float* a, int64_t count) {
  launch_dependents();
  wait_for_prior_kernel();
  const int64_t first = 4 * (static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x);
  Vec4<float> sum = load_vec4<Aligned>(z, first, count);
  const Vec4<float> input = load_vec4<Aligned>(a, first, count);
  for (int i = 0; i < 4; ++i) sum.x[i] += silu_scalar(input.x[i]);
  store_vec4<Aligned>(sum, z, first, count);
}

/// Sums of q * q, k * k and q * k.
struct Products {
  float qq = 0, kk = 0, qk = 0;
};

/// Adds up the threads' sums; every thread of the block gets the result.
__device__ inline Products block_products(const Products& own) {
  __shared__ float warp_sums[3][warps];
  const float sums[3] = {warp_sum(own.qq), warp_sum(own.kk), warp_sum(own.qk)};
  if (threadIdx.x % warp_size == 0)
    for (int i = 0; i < 3; ++i) warp_sums[i][threadIdx.x / warp_size] = sums[i];
  __syncthreads();
  Products total;
  for (int warp = 0; warp < warps; ++warp) {
    total.qq += warp_sums[0][warp];
    total.kk += warp_sums[1][warp];
    total.qk += warp_sums[2][warp];
  }
  return total;
}

/// One block for each slice (group) of each row. T: the type of `rounded`; KV: of keys and values. The
/// block's pointers point to its slice.
template <class T, class KV, bool Aligned>
__global__ void __launch_bounds__(threads) add_gated_slices(GatedCall call) {
  launch_dependents();
  wait_for_prior_kernel();
  const int64_t groups = call.groups, row = blockIdx.x / groups, width = call.width;
  const int slice = static_cast<int>(width / groups);
  const int64_t offset = blockIdx.x % groups * slice;  // of the slice in its row
  const int64_t begin = row * width + offset;
  const int64_t kv_row = call.kv_rows != nullptr ? call.kv_rows[row] : row;
  const float* q = call.q + begin;
  const KV *k = static_cast<const KV*>(call.kv) + 2 * kv_row * width + offset, *v = k + width;
  const int64_t s_row = call.s_rows != nullptr ? call.s_rows[row] : row;
  const float* s = call.s + s_row * width + offset;
  float* out = call.out + begin;
  T* rounded = static_cast<T*>(call.rounded) + begin;
  Products own;
  for (int first = 4 * threadIdx.x; first < slice; first += 4 * threads) {
    const Vec4<float> a = load_vec4<Aligned>(q, first, slice), b = load_vec4<Aligned>(k, first, slice);
    for (int i = 0; i < 4; ++i) {
      own.qq += a.x[i] * a.x[i];
      own.kk += b.x[i] * b.x[i];
      own.qk += a.x[i] * b.x[i];
    }
  }
  const Products total = block_products(own);
  const float eps = call.eps, q_norm = sqrtf(total.qq), k_norm = sqrtf(total.kk);
  const float gate = total.qk / ((q_norm > eps ? q_norm : eps) * (k_norm > eps ? k_norm : eps));
  for (int first = 4 * threadIdx.x; first < slice; first += 4 * threads) {
    Vec4<float> sum = load_vec4<Aligned>(s, first, slice);
    const Vec4<float> value = load_vec4<Aligned>(v, first, slice);
    for (int i = 0; i < 4; ++i) {
      const float gated = value.x[i] * gate;
      sum.x[i] += call.silu ? silu_scalar(gated) : gated;
    }
    store_vec4<Aligned>(sum, out, first, slice);
    store_vec4<Aligned>(sum, rounded, first, slice);
  }
}

}  // namespace

void run_on_gpu(const AddSiluCall& call, const GpuContext& context) {
  const auto launch_all = [&](auto aligned) {
    launch("add_silu_", add_silu_all<decltype(aligned)::value>, dim3(blocks_for(vec4s_of(call.count))),
           threads, 0, context.stream, call.z, call.a, call.count);
  };
  with_alignment(launch_all, call.count, call.z, call.a);
}

void run_on_gpu(const GatedCall& call, const GpuContext& context) {
  // Only the types of the arguments are used: T and KV.
  const auto launch_slices = [&](auto rounded_type, auto kv_type) {
    using T = decltype(rounded_type);
    using KV = decltype(kv_type);
    const auto launch_aligned = [&](auto aligned) {
      launch("add_gated", add_gated_slices<T, KV, decltype(aligned)::value>, dim3(call.rows * call.groups),
             threads, 0, context.stream, call);
    };
    with_alignment(launch_aligned, call.width / call.groups, call.s, call.q, static_cast<const KV*>(call.kv),
                   static_cast<const float*>(call.out), static_cast<const T*>(call.rounded));
  };
  with_element(call.element, [&](auto rounded_type) {
    call.kv_rows != nullptr ? launch_slices(rounded_type, rounded_type)
                            : launch_slices(rounded_type, float{});
  });
}

}  // namespace clover::kernels
