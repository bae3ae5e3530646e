#pragma once

#include "kernels/gpu/device.cuh"

// The order in which logits are ranked: the larger first, then the lower index, NaN as -inf.
namespace clover::kernels::cuda {

/// The key of no value, which is below all others, and one that is above all others.
constexpr uint64_t no_key = 0, above_all = ~uint64_t{0};

/// The key of a logit: the larger, the better the logit ranks; no two keys of a row are equal. The index has
/// 32 bits.
__device__ inline uint64_t key_of(float x, uint32_t index) {
  const float ranked = x == x ? x + 0.0f : minus_infinity();  // the sum makes -0 the 0 that it ties with
  const uint32_t bits = bits_as<uint32_t>(ranked), sign = 0x80000000u;
  const uint32_t rising = (bits & sign) != 0 ? ~bits : bits | sign;
  return uint64_t{rising} << 32 | ~index;
}
__device__ inline uint32_t index_of(uint64_t key) {
  return ~static_cast<uint32_t>(key);
}

__device__ inline uint64_t warp_best(uint64_t key) {
  const uint32_t value = static_cast<uint32_t>(key >> 32);
  const uint32_t best = __reduce_max_sync(all_lanes, value);
  return uint64_t{best} << 32 |
         __reduce_max_sync(all_lanes, value == best ? static_cast<uint32_t>(key) : uint32_t{0});
}

/// Every thread of a block of `Warps` warps gets the block's best; all of them must call it.
template <int Warps>
__device__ inline uint64_t block_best(uint64_t key) {
  __shared__ uint64_t parts[Warps];
  key = warp_best(key);
  __syncthreads();  // the last call's have been read
  if (threadIdx.x % warp_size == 0) parts[threadIdx.x / warp_size] = key;
  __syncthreads();
  for (const uint64_t part : parts)
    if (part > key) key = part;
  return key;
}

}  // namespace clover::kernels::cuda
