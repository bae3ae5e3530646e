#pragma once

#include "kernels/attention/attention_tile.cuh"

// Writes a tile's results, or its partial results, which the last thread block of the tile merges: partial
// results of single blocks of keys are merged into parts of four blocks (attention_plan.h), and parts in
// order into the result. Mass is the sum of softmax weights, which are relative to the largest score:
// exp(score - largest).
namespace clover::kernels::cuda {
namespace {

/// Partial results in the workspace: weighted values [rows, query heads, parts, head size], then the stats,
/// {largest score, exp_sum} [rows, query heads, parts, 2]. `index` is row * query heads + head.
class Partials {
 public:
  __device__ Partials(const AttentionCall& call, int64_t parts, float* workspace)
      : head_size_(call.head_size),
        parts_(parts),
        sums_(workspace),
        stats_(workspace + call.rows * call.query_heads * parts * call.head_size) {}
  __device__ float* sums(int64_t index, int64_t part) const {
    return sums_ + (index * parts_ + part) * head_size_;
  }
  __device__ float2* stats(int64_t index, int64_t part) const {
    return reinterpret_cast<float2*>(stats_) + index * parts_ + part;
  }

 private:
  int64_t head_size_, parts_;
  float *sums_, *stats_;
};

/// The weighted mean; 0 for an empty path, whose exp_sum is 0.
__device__ inline float mean_of(float sum, float exp_sum) {
  return exp_sum == 0 ? 0 : sum / exp_sum;
}

/// Sets the result to that of no keys.
template <int Tiles, int Eights>
__device__ __forceinline__ void begin_result(const Tile<Tiles>& tile, Sums<Eights>& sums) {
  sums = {};
  if (threadIdx.x >= Tile<Tiles>::queries) return;
  tile.largest[threadIdx.x] = minus_infinity();
  tile.exp_sum[threadIdx.x] = 0;
}

/// For each of the thread's queries for which wanted(query) is true: body(dimension, {sum, next dimension's
/// sum}) for each pair of its dimensions that the thread holds.
template <int Tiles, int Eights, class Wanted, class Body>
__device__ __forceinline__ void each_two(const Work& work, const Sums<Eights>& sums, const Wanted& wanted,
                                         const Body& body) {
  const LanePlace<Tiles> lane;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = lane.query(half);
    if (query >= work.queries() || !wanted(query)) continue;
#pragma unroll
    for (int i = 0; i < Eights; ++i) {
      const int dimension = lane.eight(i) + 2 * lane.in_group;
      if (dimension < work.call.head_size)
        body(dimension, float2{sums.x[i][2 * half], sums.x[i][2 * half + 1]});
    }
  }
}

/// Writes partial result number `part` of the rows in `rows`, a bit each.
template <int Tiles, int Eights>
__device__ inline void write_partial(const Work& work, const Tile<Tiles>& tile, unsigned rows, int part,
                                     const Sums<Eights>& sums, const Partials& partials) {
  const auto has = [&](int query) { return (rows >> work.row_of(query) & 1u) != 0; };
  float* to = nullptr;
  each_two<Tiles>(
      work, sums,
      [&](int query) {
        to = partials.sums(work.index_of(query), part);
        return has(query);
      },
      [&](int dimension, float2 two) { *reinterpret_cast<float2*>(to + dimension) = two; });
  const int query = threadIdx.x;
  if (query < work.queries() && has(query))
    *partials.stats(work.index_of(query), part) = {tile.largest[query], tile.exp_sum[query]};
}

/// Writes the result of a tile with one part: the same bits that merge_query would yield. Adding 0 turns -0
/// into 0, as it does there.
template <int Tiles, int Eights>
__device__ inline void write_result(const Work& work, const Tile<Tiles>& tile, const Sums<Eights>& sums) {
  int64_t begin = 0;
  float exp_sum = 0;
  each_two<Tiles>(
      work, sums,
      [&](int query) {
        begin = work.index_of(query) * work.call.head_size;
        exp_sum = tile.exp_sum[query];
        return true;
      },
      [&](int dimension, float2 two) {
        store_as(work.call.out, work.call.result, begin + dimension, mean_of(0.0f + two.x, exp_sum));
        store_as(work.call.out, work.call.result, begin + dimension + 1, mean_of(0.0f + two.y, exp_sum));
      });
}

/// How up to `Blocks` partial results merge into one part, by online softmax: the factors for the sum so far
/// and for the partial result that is added, and the part's largest score and exp_sum.
template <int Blocks>
struct Folding {
  float old_scale[Blocks], new_scale[Blocks];
  float largest = minus_infinity(), exp_sum = 0;

  __device__ Folding(const float2* stats, int count) {
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
      old_scale[i] = 1, new_scale[i] = 0;
      if (i >= count) continue;
      const float2 stat = __ldcg(stats + i);
      const float new_largest = larger(stat.x, largest);
      old_scale[i] = exp_scalar(largest - new_largest), new_scale[i] = exp_scalar(stat.x - new_largest);
      exp_sum = fold(exp_sum, old_scale[i], stat.y, new_scale[i]);
      largest = new_largest;
    }
  }
};
template <>
struct Folding<1> {
  float largest, exp_sum;
  __device__ Folding(const float2* stats, int) : largest(__ldcg(stats).x), exp_sum(__ldcg(stats).y) {}
};

/// Four dimensions of a part, merged from min(count, Blocks) partial results at `from`, `width` numbers
/// apart; lane `lane` has their Folding.
template <int Blocks>
__device__ inline float4 folded(const Folding<Blocks>& mine, int lane, const float* from, int width,
                                int count) {
  if constexpr (Blocks == 1) {
    return __ldcg(reinterpret_cast<const float4*>(from));
  } else {
    float4 x{0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
      const float old_scale = __shfl_sync(all_lanes, mine.old_scale[i], lane),
                  new_scale = __shfl_sync(all_lanes, mine.new_scale[i], lane);
      if (i >= count) continue;
      const float4 more = __ldcg(reinterpret_cast<const float4*>(from + i * width));
      x = {fold(x.x, old_scale, more.x, new_scale), fold(x.y, old_scale, more.y, new_scale),
           fold(x.z, old_scale, more.z, new_scale), fold(x.w, old_scale, more.w, new_scale)};
    }
    return x;
  }
}

/// Writes the result of a query from `count` partial results, `Blocks` of which merge into one part. One warp
/// calls it: a lane has the Folding of one of 32 parts at a time, and sums four dimensions.
template <int Blocks>
__device__ inline void merge_query(const AttentionCall& call, const Partials& partials, int64_t index,
                                   int count) {
  const int lane = threadIdx.x % warp_size, parts = (count + Blocks - 1) / Blocks;
  const int width = static_cast<int>(call.head_size);
  const float2* stats = partials.stats(index, 0);
  float top = minus_infinity();
  for (int i = lane; i < count; i += warp_size) top = larger(__ldcg(stats + i).x, top);
  top = warp_max(top);
#pragma unroll 1
  for (int dimension = 4 * lane; dimension < width + 4 * lane; dimension += 4 * warp_size) {
    const bool inside = dimension < width;
    const float* from = partials.sums(index, 0) + (inside ? dimension : 0);
    float4 sum{0, 0, 0, 0};
    float exp_sum = 0;
#pragma unroll 1
    for (int first = 0; first < parts; first += warp_size) {
      const int batch_parts = parts - first < warp_size ? parts - first : warp_size;
      const int first_partial = (first + (lane < batch_parts ? lane : 0)) * Blocks;
      const Folding<Blocks> folding(stats + first_partial, count - first_partial);
      // A part without keys has -inf as its largest score, and -inf - (-inf) would be NaN.
      const float share = folding.largest == top ? 1 : exp_scalar(folding.largest - top);
      exp_sum += lane < batch_parts ? share * folding.exp_sum : 0;
#pragma unroll(Blocks == 1 ? 4 : 1)
      for (int i = 0; i < batch_parts; ++i) {
        const int merged = (first + i) * Blocks;
        const float4 x = folded<Blocks>(folding, i, from + int64_t{merged} * width, width, count - merged);
        const float share_of_part = __shfl_sync(all_lanes, share, i);
        sum.x += share_of_part * x.x, sum.y += share_of_part * x.y, sum.z += share_of_part * x.z,
            sum.w += share_of_part * x.w;
      }
    }
    exp_sum = warp_sum(exp_sum);
    if (!inside) continue;
    const float means[4] = {mean_of(sum.x, exp_sum), mean_of(sum.y, exp_sum), mean_of(sum.z, exp_sum),
                            mean_of(sum.w, exp_sum)};
#pragma unroll
    for (int i = 0; i < 4; ++i) store_as(call.out, call.result, index * width + dimension + i, means[i]);
  }
}

/// Writes the results of a tile from its partial results, of `blocks` blocks of keys each.
__device__ inline void merge_tile(const Work& work, const Span* spans, int blocks, const Partials& partials) {
#pragma unroll 1
  for (int query = threadIdx.x / warp_size; query < work.queries(); query += warps) {
    const int row_blocks = blocks_of(spans[work.row_of(query)].length);
    if (blocks == 1) {
      merge_query<max_part_blocks>(work.call, partials, work.index_of(query), row_blocks);
    } else {
      merge_query<1>(work.call, partials, work.index_of(query),
                     (row_blocks + max_part_blocks - 1) / max_part_blocks);
    }
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
