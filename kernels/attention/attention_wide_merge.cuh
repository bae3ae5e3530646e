#pragma once

#include <type_traits>

#include "kernels/attention/attention_merge.cuh"
#include "kernels/attention/attention_wide.cuh"

// Writes a wide tile's results, or its partial results, of single blocks of keys or of parts of 16 blocks
// (attention_plan.h), which the last thread block of the tile merges: blocks in order into parts, and parts
// in order into the result.
namespace clover::kernels::cuda {
namespace {

/// body(T{}) for the element's type.
template <class Body>
__device__ __forceinline__ void as_element(Element element, const Body& body) {
  if (element == Element::bf16) return body(Bf16{});
  if (element == Element::fp16) return body(Fp16{});
  body(float{});
}

template <class T>
__device__ __forceinline__ void store_two(T* to, float low, float high) {
  from_float(low, to[0]), from_float(high, to[1]);
}
template <>
__device__ __forceinline__ void store_two(float* to, float low, float high) {
  *reinterpret_cast<float2*>(to) = {low, high};
}
template <>
__device__ __forceinline__ void store_two(Bf16* to, float low, float high) {
  *reinterpret_cast<uint32_t*>(to) = pack_two_bf16(low, high);
}

/// Calls body(dimension, sum, sum of the next dimension) for all pairs of dimensions that the thread holds of
/// its query number `query`, 0 or 1.
template <int Size, class Body>
__device__ __forceinline__ void each_two_of(const WideSums<Size>& sums, int query, const Body& body) {
#pragma unroll
  for (int half = 0; half < Size / 64; ++half)
#pragma unroll
    for (int i = 0; i < 8; ++i)
      body(64 * half + 8 * i + 2 * static_cast<int>(threadIdx.x % 4), sums.x[half][i][2 * query],
           sums.x[half][i][2 * query + 1]);
}

/// Writes partial result number `part` of those of the thread's queries that have attended to a key, and
/// clears `sums`.
template <int Size>
__device__ __forceinline__ void write_wide_partial(const WideWork& work, const OwnQuery (&own)[2], int part,
                                                   WideSums<Size>& sums, const Partials& partials) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (!own[i].exists() || sums.exp_sum[i] == 0) continue;
    const int64_t index = work.index_of(own[i].query);
    float* to = partials.sums(index, part);
    each_two_of(sums, i, [&](int dimension, float first, float second) {
      *reinterpret_cast<float2*>(to + dimension) = {first, second};
    });
    if (threadIdx.x % 4 == 0) *partials.stats(index, part) = {sums.largest[i], sums.exp_sum[i]};
  }
  sums.clear();
}

/// Writes the result of a tile of which one item computes all keys: the same bits that merge_wide_query would
/// yield. Adding 0 turns -0 into 0, as it does there.
template <int Size>
__device__ __forceinline__ void write_wide_result(const WideWork& work, const OwnQuery (&own)[2],
                                                  const WideSums<Size>& sums) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (!own[i].exists()) continue;
    const float share = sums.exp_sum[i] == 0 ? 0 : 1 / sums.exp_sum[i];
    const int64_t begin = work.index_of(own[i].query) * Size;
    as_element(work.call.result, [&](auto zero) {
      auto* to = static_cast<decltype(zero)*>(work.call.out) + begin;
      each_two_of(sums, i, [&](int dimension, float first, float second) {
        store_two(to + dimension, (0.0f + first) * share, (0.0f + second) * share);
      });
    });
  }
}

/// Merges a part into `result` and clears the part.
template <int Size>
__device__ __forceinline__ void add_part(WideSums<Size>& result, WideSums<Size>& part) {
#pragma unroll
  for (int query = 0; query < 2; ++query) {
    if (part.exp_sum[query] == 0) continue;
    const Fold fold(result.largest[query], result.exp_sum[query], part.largest[query], part.exp_sum[query]);
#pragma unroll
    for (int half = 0; half < Size / 64; ++half)
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 2 * query; j < 2 * query + 2; ++j)
          result.x[half][i][j] = fold.of(result.x[half][i][j], part.x[half][i][j]);
  }
  part.clear();
}

/// A lane's dimensions of a query's result or partial result.
template <int Size>
struct Merged {
  static constexpr int width = Size / warp_size;
  float largest = minus_infinity(), exp_sum = 0;
  float x[width] = {};

  __device__ __forceinline__ void add(const Merged& more) {
    const Fold fold(largest, exp_sum, more.largest, more.exp_sum);
#pragma unroll
    for (int i = 0; i < width; ++i) x[i] = fold.of(x[i], more.x[i]);
  }
  __device__ __forceinline__ void read(const Partials& partials, int64_t index, int number) {
    using Lanes = std::conditional_t<width == 4, float4, float2>;
    const float2 stat = __ldcg(partials.stats(index, number));
    const Lanes lanes =
        __ldcg(reinterpret_cast<const Lanes*>(partials.sums(index, number)) + threadIdx.x % warp_size);
    largest = stat.x, exp_sum = stat.y;
    __builtin_memcpy(x, &lanes, sizeof x);
  }
};

/// Writes the result of a query from `count` partial results, `partials_per_part` of which merge into one
/// part. One warp calls it.
template <int Size>
__device__ inline void merge_wide_query(const AttentionCall& call, const Partials& partials, int64_t index,
                                        int count, int partials_per_part) {
  constexpr int at_once = 16;
  Merged<Size> result, part;
#pragma unroll 1
  for (int first = 0; first < count; first += at_once) {
    Merged<Size> read[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) read[i].read(partials, index, first + i < count ? first + i : first);
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (first + i >= count) break;
      part.add(read[i]);
      if ((first + i + 1) % partials_per_part != 0 && first + i + 1 < count) continue;
      result.add(part);
      part = {};
    }
  }
  const float share = result.exp_sum == 0 ? 0 : 1 / result.exp_sum;
  const int64_t at = index * Size + threadIdx.x % warp_size * Merged<Size>::width;
  as_element(call.result, [&](auto zero) {
    auto* to = static_cast<decltype(zero)*>(call.out) + at;
#pragma unroll
    for (int i = 0; i < Merged<Size>::width; i += 2)
      store_two(to + i, result.x[i] * share, result.x[i + 1] * share);
  });
}

/// Writes the results of a tile from its partial results, of `blocks` blocks of keys each.
template <int Size, int Groups>
__device__ inline void merge_wide_tile(const WideWork& work, const Span* spans, int blocks,
                                       const Partials& partials) {
#pragma unroll 1
  for (int query = threadIdx.x / warp_size; query < work.queries(); query += 4 * Groups) {
    const int row_blocks = blocks_of(spans[query / work.heads].length);
    merge_wide_query<Size>(work.call, partials, work.index_of(query), (row_blocks + blocks - 1) / blocks,
                           wide_max_part_blocks / blocks);
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
