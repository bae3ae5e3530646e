#pragma once

#include "kernels/cache_row.h"
#include "kernels/device/cuda.h"
#include "kernels/device/linear_plan.h"

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

__device__ inline void store(const LinearCall& call, int64_t row, int64_t output, float sum) {
  if (row >= call.rows || output >= call.outputs) return;
  float* to = call.y + row * call.outputs + output;
  if (call.accumulate) {
    *to = *to + sum;
  } else {
    *to = call.bias != nullptr ? call.bias[output] + sum : sum;
  }
}

/// Outputs `output`, an even one, and the next of queries, keys or values: to where they belong.
__device__ inline void store_turned(const RopeCall& call, int64_t row, unsigned output, float low,
                                    float high) {
  const unsigned size = call.head_size, half = size / 2, head = output / size, within = output % size,
                 pair = within / 2, queries = call.query_heads, keys = call.kv_heads;
  // Where the cache has the row's keys or values of a head.
  const auto place = [&](unsigned kv_head) {
    return cache_row(call, place_of(call.slots[row], call.page_size), kv_head) * size;
  };
  if (head >= queries + keys) {
    const int64_t to = place(head - queries - keys) + within;
    store_as(call.v, call.cache, to, low);
    return store_as(call.v, call.cache, to + 1, high);
  }
  const float cos = call.cos[row * half + pair], sin = call.sin[row * half + pair];
  const float turned_low = low * cos - high * sin, turned_high = high * cos + low * sin;
  if (head < queries) {
    float* to = call.q + (row * queries + head) * size + pair;
    to[0] = turned_low;
    to[half] = turned_high;
  } else {
    const int64_t to = place(head - queries) + pair;
    store_as(call.k, call.cache, to, turned_low);
    store_as(call.k, call.cache, to + half, turned_high);
  }
}

/// What becomes of the sums of outputs `output`, an even one, and the next.
__device__ inline void store_pair(const LinearCall& call, int64_t row, int64_t output, float low,
                                  float high) {
  if (row >= call.rows || output >= call.outputs) return;
  switch (call.epilogue) {
    case Epilogue::store:
      store(call, row, output, low);
      return store(call, row, output + 1, high);
    case Epilogue::silu_mul:
      return store_as(call.product, call.element, (row * call.outputs + output) / 2, silu_one(low) * high);
    case Epilogue::rope_and_store:
      if (call.bias != nullptr) low = call.bias[output] + low, high = call.bias[output + 1] + high;
      return store_turned(call.rope, row, static_cast<unsigned>(output), low, high);
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
