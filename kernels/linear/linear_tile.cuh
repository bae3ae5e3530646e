#pragma once

#include "kernels/gpu/device.cuh"
#include "kernels/linear/linear_plan.h"
#include "kernels/rows/cache_row.h"
#include "kernels/vocabulary/ranking.cuh"

// y = x W^T on tensor cores, and the epilogues that all kernels share.  A panel of 16 outputs is the left
// operand `a` of multiply_add (kernels/gpu/device.cuh), a tile of eight rows of x is the right operand `b`.
// Weights are read straight from the layout of PackedWeight.  A step is 16 inputs, a chunk two steps.  Within
// a step, lane 4g + t (lane / 4 = g, lane % 4 = t) multiplies inputs 4t .. 4t+3; the order of inputs within a
// step is free, and this one lets a lane read eight bytes at a time.  Outputs 2g and 2g + 1 of the panel are
// rows g and g + 8 of `a`.
namespace clover::kernels::cuda {
namespace {

constexpr int step_words = 8 * panel_outputs;  // 32-bit words of a panel's step: a pair of inputs each
constexpr int chunk_words = 2 * step_words;

/// This thread's warp, and its place in it: lane 4 * group + in_group, which is 4g + t above.
struct Lane {
  int warp, group, in_group;
  __device__ Lane()
      : warp(threadIdx.x / warp_size), group(threadIdx.x % warp_size / 4), in_group(threadIdx.x % 4) {}
};

__device__ inline uint2 read_two(const uint32_t* from) {
  return *reinterpret_cast<const uint2*>(from);
}

/// Reads this lane's weights of a step, the left operand `a` of multiply_add. `low` points to the lane's
/// first pair of inputs of outputs 2g and 2g + 1 (two words), `high` to its second pair.
__device__ __forceinline__ void read_left_operand(const uint32_t* low, const uint32_t* high,
                                                  uint32_t (&a)[4]) {
  const uint2 first = read_two(low), second = read_two(high);
  a[0] = first.x, a[1] = first.y, a[2] = second.x, a[3] = second.y;
}

/// Epilogue::store of one sum.
__device__ inline void store(const LinearCall& call, int64_t row, int64_t output, float sum) {
  if (row >= call.rows || output >= call.outputs) return;
  float* to = call.y + row * call.outputs + output;
  if (call.accumulate) {
    *to = *to + sum;
  } else {
    *to = call.bias != nullptr ? call.bias[output] + sum : sum;
  }
}

/// Outputs `output`, an even number, and output + 1.  A thread that stores several rows computes it once.
struct OutputPair {
  int64_t output;
  // For rope_and_store: the head, counted over queries, then keys, then values, and the place of `output` in
  // it.
  unsigned head = 0, within = 0;

  __device__ static OutputPair of(const LinearCall& call, int64_t output) {
    if (call.epilogue != Epilogue::rope_and_store) return {output};
    const unsigned size = call.rope.head_size, output32 = static_cast<unsigned>(output),
                   head = output32 / size;
    return {output, head, output32 - head * size};
  }
};

/// What the epilogue of a row's pair reads from memory.  A thread with several pairs reads all of their
/// operands before it stores the first pair, so that it waits for memory once.
struct PairOperands {
  float low_bias = 0, high_bias = 0, cos = 1, sin = 0;
  uint32_t slot = 0;
};

__device__ inline PairOperands read_operands(const RopeCall& call, int64_t row, const OutputPair& pair) {
  PairOperands operands;
  const unsigned queries = call.query_heads, keys = call.kv_heads;
  const int64_t angle = row * (call.head_size / 2) + pair.within / 2;
  if (pair.head < queries + keys) operands.cos = call.cos[angle], operands.sin = call.sin[angle];
  if (pair.head >= queries) operands.slot = static_cast<uint32_t>(call.slots[row]);
  return operands;
}
__device__ inline PairOperands read_operands(const LinearCall& call, int64_t row, const OutputPair& pair) {
  if (call.epilogue != Epilogue::rope_and_store || row >= call.rows || pair.output >= call.outputs) return {};
  PairOperands operands = read_operands(call.rope, row, pair);
  if (call.bias != nullptr)
    operands.low_bias = call.bias[pair.output], operands.high_bias = call.bias[pair.output + 1];
  return operands;
}

/// Rotates a pair of a query or key; stores it, or the pair of a value, to q or the cache.
__device__ inline void store_rotated(const RopeCall& call, int64_t row, const OutputPair& pair, float low,
                                     float high, const PairOperands& operands) {
  const unsigned size = call.head_size, half = size / 2, queries = call.query_heads, keys = call.kv_heads;
  // Element of k or v where the row's vector of a kv head begins.
  const auto place = [&](unsigned kv_head) {
    return cache_row(call, place_of(operands.slot, call.page_size), kv_head) * size;
  };
  if (pair.head >= queries + keys) {
    const int64_t to = place(pair.head - queries - keys) + pair.within;
    store_as(call.v, call.cache, to, low);
    return store_as(call.v, call.cache, to + 1, high);
  }
  const float rotated_low = low * operands.cos - high * operands.sin,
              rotated_high = high * operands.cos + low * operands.sin;
  if (pair.head < queries) {
    float* to = call.q + (row * queries + pair.head) * size + pair.within / 2;
    to[0] = rotated_low;
    to[half] = rotated_high;
  } else {
    const int64_t to = place(pair.head - queries) + pair.within / 2;
    store_as(call.k, call.cache, to, rotated_low);
    store_as(call.k, call.cache, to + half, rotated_high);
  }
}

/// The distance between the eight lanes of a warp that hold a row's eight pairs of a panel: they are lanes 8i
/// .. 8i + 7, or lanes i, i + 4, i + 8, ...
enum class PairLanes { neighbours = 1, groups = 4 };

/// Epilogue::arg_max: writes the largest key of a row's 16 sums of a panel. Each lane brings the pair that
/// begins at `output`; all lanes of a warp must call it.
__device__ inline void store_arg_max(const LinearCall& call, int64_t row, int64_t output, float low,
                                     float high, PairLanes lanes) {
  const int lane = threadIdx.x % warp_size, lane_distance = static_cast<int>(lanes);
  // Outputs beyond the last one count as -inf; they lose against real outputs of -inf, which come first.
  low = output < call.outputs ? larger(low, minus_infinity()) : minus_infinity();
  high = output + 1 < call.outputs ? larger(high, minus_infinity()) : minus_infinity();
  const float lane_best = larger(high, low);
  float best = lane_best;
#pragma unroll
  for (int step = 1; step < 8; step *= 2)
    best = larger(__shfl_xor_sync(all_lanes, best, step * lane_distance), best);
  const unsigned row_lanes = lanes == PairLanes::groups ? 0x11111111u << lane % 4 : 0xffu << (lane & ~7);
  const unsigned holders = __ballot_sync(all_lanes, lane_best == best) & row_lanes;
  if (row >= call.rows || output / panel_outputs >= panels_of(call.outputs)) return;
  if ((holders & -holders) != 1u << lane) return;
  call.best_keys[row * panels_of(call.outputs) + output / panel_outputs] =
      key_of(best, static_cast<uint32_t>(low == best ? output : output + 1));
}

/// The epilogue of a row's pair of sums. Eight neighbouring lanes hold the row's pairs of a panel; all lanes
/// of a warp call it.
__device__ inline void store_pair(const LinearCall& call, int64_t row, const OutputPair& pair, float low,
                                  float high, const PairOperands& operands) {
  if (call.epilogue == Epilogue::arg_max)  // before the bounds check, because all lanes must take part
    return store_arg_max(call, row, pair.output, low, high, PairLanes::neighbours);
  if (row >= call.rows || pair.output >= call.outputs) return;
  switch (call.epilogue) {
    case Epilogue::store:
      store(call, row, pair.output, low);
      return store(call, row, pair.output + 1, high);
    case Epilogue::silu_mul:
      return store_as(call.product, call.element, (row * call.outputs + pair.output) / 2,
                      silu_scalar(low) * high);
    case Epilogue::rope_and_store:
      if (call.bias != nullptr) low = operands.low_bias + low, high = operands.high_bias + high;
      return store_rotated(call.rope, row, pair, low, high, operands);
    case Epilogue::arg_max:
      return;
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
