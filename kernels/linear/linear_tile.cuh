#pragma once

#include "kernels/gpu/device.cuh"
#include "kernels/linear/linear_plan.h"
#include "kernels/rows/cache_row.h"
#include "kernels/vocabulary/ranking.cuh"

// y = x W^T on tensor cores.  A panel of 16 outputs is the left operand, eight rows of x the right one, so
// weights are read once for any number of rows below the tile's, straight from the layout that the CPU packs.
// Within a step of 16 inputs, lane 4g + t multiplies inputs 4t .. 4t+3: any assignment of inputs to places
// would do, this one lets it read eight bytes at a time; outputs 2g and 2g + 1 of the panel take rows g and g
// + 8 of the tile.
namespace clover::kernels::cuda {
namespace {

constexpr int step_words = 8 * panel_outputs;  // of a panel: pairs of 16 inputs
constexpr int chunk_words = 2 * step_words;

struct Lane {
  int warp, group, in_group;
  __device__ Lane()
      : warp(threadIdx.x / warp_size), group(threadIdx.x % warp_size / 4), in_group(threadIdx.x % 4) {}
};

__device__ inline uint2 read_two(const uint32_t* from) {
  return *reinterpret_cast<const uint2*>(from);
}

/// The left operand of multiply_add: pairs of two outputs each, of the first inputs and of the others.
__device__ __forceinline__ void read_left(const uint32_t* low, const uint32_t* high, uint32_t (&a)[4]) {
  const uint2 first = read_two(low), others = read_two(high);
  a[0] = first.x, a[1] = first.y, a[2] = others.x, a[3] = others.y;
}

__device__ inline void store(const LinearCall& call, int64_t row, int64_t output, float sum) {
  if (row >= call.rows || output >= call.outputs) return;
  float* to = call.y + row * call.outputs + output;
  if (call.accumulate) {
    *to = *to + sum;
  } else {
    *to = call.bias != nullptr ? call.bias[output] + sum : sum;
  }
}

/// Outputs `output`, an even one, and the next.  Of queries, keys and values: elements `within` and the next
/// of head number `head` of all of them.  A thread that stores several rows of a pair asks for it once.
struct OutputPair {
  int64_t output;
  unsigned head = 0, within = 0;

  __device__ static OutputPair of(const LinearCall& call, int64_t output) {
    if (call.epilogue != Epilogue::rope_and_store) return {output};
    const unsigned size = call.rope.head_size, narrow = static_cast<unsigned>(output), head = narrow / size;
    return {output, head, narrow - head * size};
  }
};

/// What the epilogue of a row's pair reads besides its sums, as a value of its own: a thread with several
/// pairs loads all of it before it stores the first, or each would wait for memory in turn.
struct BesidePair {
  float low_bias = 0, high_bias = 0, cos = 1, sin = 0;
  uint32_t slot = 0;
};

__device__ inline BesidePair read_beside(const RopeCall& call, int64_t row, const OutputPair& pair) {
  BesidePair read;
  const unsigned queries = call.query_heads, keys = call.kv_heads;
  const int64_t turn = row * (call.head_size / 2) + pair.within / 2;
  if (pair.head < queries + keys) read.cos = call.cos[turn], read.sin = call.sin[turn];
  if (pair.head >= queries) read.slot = static_cast<uint32_t>(call.slots[row]);
  return read;
}
__device__ inline BesidePair read_beside(const LinearCall& call, int64_t row, const OutputPair& pair) {
  if (call.epilogue != Epilogue::rope_and_store || row >= call.rows || pair.output >= call.outputs) return {};
  BesidePair read = read_beside(call.rope, row, pair);
  if (call.bias != nullptr)
    read.low_bias = call.bias[pair.output], read.high_bias = call.bias[pair.output + 1];
  return read;
}

/// Stores rotated queries or keys, or values, where they belong.
__device__ inline void store_turned(const RopeCall& call, int64_t row, const OutputPair& pair, float low,
                                    float high, const BesidePair& read) {
  const unsigned size = call.head_size, half = size / 2, queries = call.query_heads, keys = call.kv_heads;
  // Where the cache has the row's keys or values of a head.
  const auto place = [&](unsigned kv_head) {
    return cache_row(call, place_of(read.slot, call.page_size), kv_head) * size;
  };
  if (pair.head >= queries + keys) {
    const int64_t to = place(pair.head - queries - keys) + pair.within;
    store_as(call.v, call.cache, to, low);
    return store_as(call.v, call.cache, to + 1, high);
  }
  const float turned_low = low * read.cos - high * read.sin, turned_high = high * read.cos + low * read.sin;
  if (pair.head < queries) {
    float* to = call.q + (row * queries + pair.head) * size + pair.within / 2;
    to[0] = turned_low;
    to[half] = turned_high;
  } else {
    const int64_t to = place(pair.head - queries) + pair.within / 2;
    store_as(call.k, call.cache, to, turned_low);
    store_as(call.k, call.cache, to + half, turned_high);
  }
}

/// Distance in their warp of the eight lanes that hold a row's pairs of a panel.
enum class PairLanes { neighbours = 1, groups = 4 };

/// The best of a row's 16 sums of a panel, in the lane that holds it; all lanes of a warp must call it.
__device__ inline void store_best(const LinearCall& call, int64_t row, int64_t output, float low, float high,
                                  PairLanes lanes) {
  const int lane = threadIdx.x % warp_size, apart = static_cast<int>(lanes);
  // What lies beyond the last output is -inf, and behind those that are.
  low = output < call.outputs ? larger(low, minus_infinity()) : minus_infinity();
  high = output + 1 < call.outputs ? larger(high, minus_infinity()) : minus_infinity();
  const float own = larger(high, low);
  float best = own;
#pragma unroll
  for (int away = 1; away < 8; away *= 2) best = larger(__shfl_xor_sync(all_lanes, best, away * apart), best);
  const unsigned of_row = lanes == PairLanes::groups ? 0x11111111u << lane % 4 : 0xffu << (lane & ~7);
  const unsigned hold = __ballot_sync(all_lanes, own == best) & of_row;
  if (row >= call.rows || output / panel_outputs >= panels_of(call.outputs)) return;
  if ((hold & -hold) != 1u << lane) return;
  call.best[row * panels_of(call.outputs) + output / panel_outputs] =
      key_of(best, static_cast<uint32_t>(low == best ? output : output + 1));
}

/// The epilogue of a row's pair of sums, whose panel eight neighbouring lanes hold; all lanes of a warp call
/// it.
__device__ inline void store_pair(const LinearCall& call, int64_t row, const OutputPair& pair, float low,
                                  float high, const BesidePair& read) {
  if (call.epilogue == Epilogue::best)  // for which lanes with no output bring -inf
    return store_best(call, row, pair.output, low, high, PairLanes::neighbours);
  if (row >= call.rows || pair.output >= call.outputs) return;
  switch (call.epilogue) {
    case Epilogue::store:
      store(call, row, pair.output, low);
      return store(call, row, pair.output + 1, high);
    case Epilogue::silu_mul:
      return store_as(call.product, call.element, (row * call.outputs + pair.output) / 2,
                      silu_one(low) * high);
    case Epilogue::rope_and_store:
      if (call.bias != nullptr) low = read.low_bias + low, high = read.high_bias + high;
      return store_turned(call.rope, row, pair, low, high, read);
    case Epilogue::best:
      return;
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
