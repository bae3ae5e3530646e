#include "kernels/device/cuda.h"
#include "kernels/device/launchers.h"

namespace clover::kernels::cuda {
namespace {

constexpr int warps = 16, threads = warps * warp_size;

struct Ranked {
  float value;
  int64_t index;
};

/// Larger first, ties to the lower index.
__device__ inline bool before(const Ranked& a, const Ranked& b) {
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}

__device__ inline Ranked warp_best(Ranked best) {
  for (int apart = warp_size / 2; apart > 0; apart /= 2) {
    const Ranked other{__shfl_xor_sync(all_lanes, best.value, apart),
                       __shfl_xor_sync(all_lanes, best.index, apart)};
    if (before(other, best)) best = other;
  }
  return best;
}

/// Every thread of the block gets the block's best.
__device__ inline Ranked block_best(Ranked best) {
  __shared__ float values[warps];
  __shared__ int64_t indices[warps];
  best = warp_best(best);
  __syncthreads();  // the last call's have been read
  if (threadIdx.x % warp_size == 0) {
    values[threadIdx.x / warp_size] = best.value;
    indices[threadIdx.x / warp_size] = best.index;
  }
  __syncthreads();
  for (int warp = 0; warp < warps; ++warp) {
    const Ranked other{values[warp], indices[warp]};
    if (before(other, best)) best = other;
  }
  return best;
}

/// The best of a row that comes after `last`; NaN counts as -inf.
__device__ inline Ranked next_best(const float* x, int64_t width, const Ranked& last) {
  Ranked best{minus_infinity(), width};
  for (int64_t i = threadIdx.x; i < width; i += threads) {
    const Ranked mine{x[i] == x[i] ? x[i] : minus_infinity(), i};
    if (before(last, mine) && before(mine, best)) best = mine;
  }
  return block_best(best);
}

/// A block a row: k passes, each for the best of what is left.  Few are asked for (branches of a node).
__global__ void __launch_bounds__(threads)
    top_k_rows(const float* logits, int64_t width, int64_t k, float* values, int64_t* indices) {
  const int64_t row = blockIdx.x;
  Ranked last{-minus_infinity(), -1};
  for (int64_t i = 0; i < k; ++i) {
    last = next_best(logits + row * width, width, last);
    if (threadIdx.x != 0) continue;
    if (values != nullptr) values[row * k + i] = last.value;
    indices[row * k + i] = last.index;
  }
}

__global__ void __launch_bounds__(threads) log_sum_exp_rows(const float* logits, int64_t width, float* out) {
  const float* x = logits + static_cast<int64_t>(blockIdx.x) * width;
  float largest = minus_infinity();
  for (int64_t i = threadIdx.x; i < width; i += threads) largest = larger(x[i], largest);
  largest = block_max<warps>(largest);
  float sum = 0;
  for (int64_t i = threadIdx.x; i < width; i += threads) sum += exp_one(x[i] - largest);
  sum = block_sum<warps>(sum);
  if (threadIdx.x != 0) return;
  // An infinite maximum is the answer itself.
  const bool infinite = largest == minus_infinity() || largest == -minus_infinity();
  out[blockIdx.x] = infinite ? largest : static_cast<float>(largest + log(static_cast<double>(sum)));
}

}  // namespace

void launch_top_k(const float* logits, int64_t rows, int64_t width, int64_t k, float* values,
                  int64_t* indices, Stream stream) {
  launch("top_k", top_k_rows, dim3(rows), threads, 0, stream, logits, width, k, values, indices);
}

void launch_arg_max(const float* logits, int64_t rows, int64_t width, int64_t* indices, Stream stream) {
  launch_top_k(logits, rows, width, 1, nullptr, indices, stream);
}

void launch_log_sum_exp(const float* logits, int64_t rows, int64_t width, float* out, Stream stream) {
  launch("log_sum_exp", log_sum_exp_rows, dim3(rows), threads, 0, stream, logits, width, out);
}

}  // namespace clover::kernels::cuda
