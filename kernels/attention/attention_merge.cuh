#pragma once

#include "kernels/attention/attention_tile.cuh"

// Writes a tile's results, or partial results, which the last block of threads of the tile merges: results of
// blocks of keys fold into parts of four, and parts are added in order.
namespace clover::kernels::cuda {
namespace {

/// Partial results in the workspace: sums [rows, query heads, parts, head size], then largest score and mass
/// [rows, query heads, parts, 2].
class Partials {
 public:
  __device__ Partials(const AttentionCall& call, int64_t parts, float* workspace)
      : head_size_(call.head_size),
        parts_(parts),
        sums_(workspace),
        ends_(workspace + call.rows * call.query_heads * parts * call.head_size) {}
  __device__ float* sums(int64_t index, int64_t part) const {
    return sums_ + (index * parts_ + part) * head_size_;
  }
  __device__ float2* end(int64_t index, int64_t part) const {
    return reinterpret_cast<float2*>(ends_) + index * parts_ + part;
  }

 private:
  int64_t head_size_, parts_;
  float *sums_, *ends_;
};

/// An empty path has no mass.
__device__ inline float mean_of(float sum, float mass) {
  return mass == 0 ? 0 : sum / mass;
}

/// The result for no keys.
template <int Tiles, int Eights>
__device__ __forceinline__ void begin_result(const Tile<Tiles>& tile, Sums<Eights>& sums) {
  sums = {};
  if (threadIdx.x >= Tile<Tiles>::queries) return;
  tile.largest[threadIdx.x] = minus_infinity();
  tile.mass[threadIdx.x] = 0;
}

/// row(query), then body(dimension, two) for each two of the thread's sums beside each other that are
/// someone's.
template <int Tiles, int Eights, class Row, class Body>
__device__ __forceinline__ void each_two(const Work& work, const Sums<Eights>& sums, const Row& row,
                                         const Body& body) {
  const LanePlace<Tiles> lane;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = lane.query(half);
    if (query >= work.queries() || !row(query)) continue;
#pragma unroll
    for (int i = 0; i < Eights; ++i) {
      const int dimension = lane.eight(i) + 2 * lane.in_group;
      if (dimension < work.call.head_size)
        body(dimension, float2{sums.x[i][2 * half], sums.x[i][2 * half + 1]});
    }
  }
}

/// The partial results number `part` of the rows in `rows`, a bit each.
template <int Tiles, int Eights>
__device__ inline void write_partial(const Work& work, const Tile<Tiles>& tile, unsigned rows, int part,
                                     const Sums<Eights>& sums, const Partials& partials) {
  const auto has = [&](int query) { return (rows >> work.row_of(query) & 1u) != 0; };
  float* own = nullptr;
  each_two<Tiles>(
      work, sums,
      [&](int query) {
        own = partials.sums(work.index_of(query), part);
        return has(query);
      },
      [&](int dimension, float2 two) { *reinterpret_cast<float2*>(own + dimension) = two; });
  const int query = threadIdx.x;
  if (query < work.queries() && has(query))
    *partials.end(work.index_of(query), part) = {tile.largest[query], tile.mass[query]};
}

/// The final result where there is one partial result: the same bits as merge_query makes of one, -0
/// included.
template <int Tiles, int Eights>
__device__ inline void write_result(const Work& work, const Tile<Tiles>& tile, const Sums<Eights>& sums) {
  int64_t own = 0;
  float mass = 0;
  each_two<Tiles>(
      work, sums,
      [&](int query) {
        own = work.index_of(query) * work.call.head_size;
        mass = tile.mass[query];
        return true;
      },
      [&](int dimension, float2 two) {
        store_as(work.call.out, work.call.result, own + dimension, mean_of(0.0f + two.x, mass));
        store_as(work.call.out, work.call.result, own + dimension + 1, mean_of(0.0f + two.y, mass));
      });
}

/// How up to four partial results fold into one part.
template <int Blocks>
struct Folding {
  float shrink[Blocks], grow[Blocks];
  float largest = minus_infinity(), mass = 0;

  __device__ Folding(const float2* ends, int count) {
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
      shrink[i] = 1, grow[i] = 0;
      if (i >= count) continue;
      const float2 end = __ldcg(ends + i);
      const float now = larger(end.x, largest);
      shrink[i] = exp_one(largest - now), grow[i] = exp_one(end.x - now);
      mass = fold(mass, shrink[i], end.y, grow[i]);
      largest = now;
    }
  }
};
template <>
struct Folding<1> {
  float largest, mass;
  __device__ Folding(const float2* ends, int) : largest(__ldcg(ends).x), mass(__ldcg(ends).y) {}
};

/// Four dimensions of a part, of which `count` partial results are left at `from`, `width` numbers each; lane
/// `lane` knows how they fold.
template <int Blocks>
__device__ inline float4 folded(const Folding<Blocks>& mine, int lane, const float* from, int width,
                                int count) {
  if constexpr (Blocks == 1) {
    return __ldcg(reinterpret_cast<const float4*>(from));
  } else {
    float4 x{0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < Blocks; ++i) {
      const float shrink = __shfl_sync(all_lanes, mine.shrink[i], lane),
                  grow = __shfl_sync(all_lanes, mine.grow[i], lane);
      if (i >= count) continue;
      const float4 more = __ldcg(reinterpret_cast<const float4*>(from + i * width));
      x = {fold(x.x, shrink, more.x, grow), fold(x.y, shrink, more.y, grow), fold(x.z, shrink, more.z, grow),
           fold(x.w, shrink, more.w, grow)};
    }
    return x;
  }
}

/// The result of a query of `count` partial results, of which `Blocks` fold into one part; a warp does it, a
/// lane for each of 32 parts in turn, then for four dimensions.
template <int Blocks>
__device__ inline void merge_query(const AttentionCall& call, const Partials& partials, int64_t index,
                                   int count) {
  const int lane = threadIdx.x % warp_size, parts = (count + Blocks - 1) / Blocks;
  const int width = static_cast<int>(call.head_size);
  const float2* ends = partials.end(index, 0);
  float top = minus_infinity();
  for (int i = lane; i < count; i += warp_size) top = larger(__ldcg(ends + i).x, top);
  top = warp_max(top);
#pragma unroll 1
  for (int dimension = 4 * lane; dimension < width + 4 * lane; dimension += 4 * warp_size) {
    const bool inside = dimension < width;
    const float* from = partials.sums(index, 0) + (inside ? dimension : 0);
    float4 sum{0, 0, 0, 0};
    float mass = 0;
#pragma unroll 1
    for (int first = 0; first < parts; first += warp_size) {
      const int here = parts - first < warp_size ? parts - first : warp_size;
      const int own = (first + (lane < here ? lane : 0)) * Blocks;
      const Folding<Blocks> mine(ends + own, count - own);
      // No keys yet leave -inf, whose difference with itself is not a number.
      const float share = mine.largest == top ? 1 : exp_one(mine.largest - top);
      mass += lane < here ? share * mine.mass : 0;
#pragma unroll(Blocks == 1 ? 4 : 1)
      for (int i = 0; i < here; ++i) {
        const int done = (first + i) * Blocks;
        const float4 x = folded<Blocks>(mine, i, from + int64_t{done} * width, width, count - done);
        const float of_all = __shfl_sync(all_lanes, share, i);
        sum.x += of_all * x.x, sum.y += of_all * x.y, sum.z += of_all * x.z, sum.w += of_all * x.w;
      }
    }
    mass = warp_sum(mass);
    if (!inside) continue;
    const float means[4] = {mean_of(sum.x, mass), mean_of(sum.y, mass), mean_of(sum.z, mass),
                            mean_of(sum.w, mass)};
#pragma unroll
    for (int i = 0; i < 4; ++i) store_as(call.out, call.result, index * width + dimension + i, means[i]);
  }
}

/// Results of a tile whose partial results are all there, of `blocks` blocks of keys each.
__device__ inline void merge_tile(const Work& work, const Span* spans, int blocks, const Partials& partials) {
#pragma unroll 1
  for (int query = threadIdx.x / warp_size; query < work.queries(); query += warps) {
    const int own = blocks_of(spans[work.row_of(query)].length);
    if (blocks == 1) {
      merge_query<split_blocks>(work.call, partials, work.index_of(query), own);
    } else {
      merge_query<1>(work.call, partials, work.index_of(query), (own + split_blocks - 1) / split_blocks);
    }
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
