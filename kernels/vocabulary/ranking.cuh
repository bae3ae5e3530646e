#pragma once

#include "kernels/gpu/device.cuh"

// The order in which logits are ranked: the larger first, then the lower index, NaN as -inf.
namespace clover::kernels::cuda {

/// no_key stands for "no logit" and is below the key of every logit; key_above_all is above every one.
constexpr uint64_t no_key = 0, key_above_all = ~uint64_t{0};

/// The ranking key of logit x at `index`: the better the logit ranks, the larger its key; no two keys of a
/// row are equal. The upper 32 bits have the order of x, the lower ones are the complement of the index.
__device__ inline uint64_t key_of(float x, uint32_t index) {
  const float ranked = x == x ? x + 0.0f : minus_infinity();  // x + 0 turns -0 into 0, so that they tie
  const uint32_t bits = bits_as<uint32_t>(ranked), sign = 0x80000000u;
  const uint32_t ordered_bits = (bits & sign) != 0 ? ~bits : bits | sign;
  return uint64_t{ordered_bits} << 32 | ~index;
}
__device__ inline uint32_t index_of(uint64_t key) {
  return ~static_cast<uint32_t>(key);
}

/// Every lane gets the largest key of the warp.
__device__ inline uint64_t warp_best(uint64_t key) {
  const uint32_t value = static_cast<uint32_t>(key >> 32);
  const uint32_t best = __reduce_max_sync(all_lanes, value);
  return uint64_t{best} << 32 |
         __reduce_max_sync(all_lanes, value == best ? static_cast<uint32_t>(key) : uint32_t{0});
}

/// Every thread gets the largest key of its block of `Warps` warps; all threads must call it.
template <int Warps>
__device__ inline uint64_t block_best(uint64_t key) {
  __shared__ uint64_t warp_keys[Warps];
  key = warp_best(key);
  __syncthreads();  // the previous call's `warp_keys` have been read
  if (threadIdx.x % warp_size == 0) warp_keys[threadIdx.x / warp_size] = key;
  __syncthreads();
  for (const uint64_t warp_key : warp_keys)
    if (warp_key > key) key = warp_key;
  return key;
}

}  // namespace clover::kernels::cuda
