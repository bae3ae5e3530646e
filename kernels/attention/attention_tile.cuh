#pragma once

#include "kernels/attention/attention_plan.h"
#include "kernels/gpu/device.cuh"

// A tile of 16 or 32 queries against one block of 64 keys, on tensor cores yet in fp32: a number of 24 bits
// is the sum of three of bf16's 8, so queries and weights go in as three parts, cached keys and values as one
// (bf16), two (fp16) or three (fp32), and products below 2^-24 are left out.
namespace clover::kernels::cuda {
namespace {

constexpr int warps = 8, threads = warps * warp_size;
constexpr int weight_stride = block_keys + 8;

template <class T>
constexpr int parts_of = 1;  // Bf16
template <>
constexpr int parts_of<Fp16> = 2;
template <>
constexpr int parts_of<float> = 3;
constexpr int query_parts = 3;

/// Keys and values of several parts take turns in the same room, or the largest heads would not fit.
template <class T>
constexpr bool share_room = parts_of<T> > 1;

/// Which parts' products count.
CLOVER_HOST_DEVICE bool counts(int part, int other) {
  return part + other < query_parts;
}

CLOVER_HOST_DEVICE Bf16 take_part(float& x) {
  Bf16 part;
  from_float(x, part);
  x -= to_float(part);
  return part;
}

/// Shared memory of a tile of `Tiles` times 16 queries, with room for `stages` blocks of keys and values.
template <int Tiles>
class Tile {
 public:
  static constexpr int queries = Tiles * tensor_queries;
  static constexpr int places = 3;  // blocks whose keys have been found
  Bf16 *query, *key, *value;        // [parts, queries | 64 | 64, stride]
  Bf16* weight;                     // [queries, parts, stride]; a query's scores lie there first
  float *largest, *mass, *shrink, *grow;
  int32_t* place;  // [places, 64] index of each key in the cache, in chunks of 8, -1 beyond the last
  int head, size, key_step, value_step;  // head size, in whole steps of 16, elements from row to row
  int key_room, value_room;              // elements of a stage

  template <class T, int Stages>
  CLOVER_HOST_DEVICE static int64_t bytes(int64_t head_size) {
    const int size = static_cast<int>(head_size + 15) / 16 * 16;
    const int64_t cached = share_room<T> ? larger_of(key_stride(size), value_stride(size))
                                         : key_stride(size) + value_stride(size);
    const int64_t halves = query_parts * queries * key_stride(size) +
                           Stages * parts_of<T> * block_keys * cached + query_parts * queries * weight_stride;
    return places * block_keys * 4 + halves * 2 + 4 * queries * 4;
  }
  template <class T, int Stages>
  __device__ __forceinline__ static Tile of(int64_t head_size) {
    return Tile(head_size, parts_of<T>, Stages, share_room<T>);
  }
  __device__ __forceinline__ Bf16* weights(int query) const {
    return weight + query * query_parts * weight_stride;
  }
  __device__ __forceinline__ float* scores(int query) const {
    return reinterpret_cast<float*>(weights(query));
  }

 private:
  CLOVER_HOST_DEVICE static int larger_of(int a, int b) { return a > b ? a : b; }
  __device__ __forceinline__ Tile(int64_t head_size, int parts, int stages, bool share) {
    head = static_cast<int>(head_size);
    size = static_cast<int>(head_size + 15) / 16 * 16;
    key_step = key_stride(size);
    value_step = value_stride(size);
    key_room = parts * block_keys * key_step;
    value_room = parts * block_keys * value_step;
    place = shared_memory<int32_t>();
    query = reinterpret_cast<Bf16*>(place + places * block_keys);
    key = query + query_parts * queries * key_step;
    value = share ? key : key + stages * key_room;
    weight = share ? key + larger_of(key_room, value_room) : value + stages * value_room;
    largest = reinterpret_cast<float*>(weight + query_parts * queries * weight_stride);
    mass = largest + queries;
    shrink = mass + queries;
    grow = shrink + queries;
  }
};

/// What a block of threads works on: queries of `rows` rows from `first_row` by `heads` heads from
/// `first_head`.
struct Work {
  const AttentionCall& call;
  const int32_t* pages;
  int64_t first_row, kv_head, first_head;
  int rows, heads;
  unsigned inverse =
      65536u / static_cast<unsigned>(heads) + 1;  // of heads: neither they nor queries exceed 32

  __device__ int queries() const { return rows * heads; }
  /// Of the tile.
  __device__ int row_of(int query) const {
    return static_cast<int>(static_cast<unsigned>(query) * inverse >> 16);
  }
  /// Index among all rows' query heads.
  __device__ int64_t index_of(int query) const {
    const int row = row_of(query);
    return (first_row + row) * call.query_heads + first_head + (query - row * heads);
  }
};

/// The tile's queries; what lies where there is none is never looked at.
template <int Tiles>
__device__ inline void load_queries(const Work& work, const Tile<Tiles>& tile) {
  constexpr int at_once = 4;
  const int d = tile.head, count = work.queries() * tile.size;
  for (int first = threadIdx.x; first < count; first += at_once * threads) {
    float x[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int wanted = first + i * threads, query = wanted / tile.size, at = wanted % tile.size;
      x[i] = wanted < count && at < d ? work.call.q[work.index_of(query) * d + at] : 0;
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int wanted = first + i * threads, query = wanted / tile.size, at = wanted % tile.size;
      for (int part = 0; part < query_parts && wanted < count; ++part)
        tile.query[(part * Tile<Tiles>::queries + query) * tile.key_step + at] = take_part(x[i]);
    }
  }
}

/// A block of keys or values to shared memory, zeros beyond the last and behind the head's end.  `Size`: of a
/// head, where it is known and whole.
template <class T, int Size, int Tiles>
__device__ __forceinline__ void load_block(const Tile<Tiles>& tile, const int32_t* place, const void* cache,
                                           Bf16* to, int step) {
  const T* from = static_cast<const T*>(cache);
  if constexpr (Size > 0 && parts_of<T> == 1) {
    constexpr int chunks = Size / 8, keys_at_once = threads / chunks;
    static_assert(threads % chunks == 0 && block_keys % keys_at_once == 0);
    const int first = threadIdx.x / chunks, chunk = threadIdx.x % chunks;
    const int32_t* own = place + first;
    Bf16* row = to + first * step + chunk * 8;
    const T* base = from + chunk * 8;
    int at[block_keys / keys_at_once];
#pragma unroll
    for (int i = 0; i < block_keys / keys_at_once; ++i) at[i] = own[i * keys_at_once];
#pragma unroll
    for (int i = 0; i < block_keys / keys_at_once; ++i)
      copy_async(row + i * keys_at_once * step, base + int64_t{8} * (at[i] < 0 ? 0 : at[i]), at[i] < 0);
  } else {
    const int chunks = tile.size / 8, used = tile.head / 8;
    for (int i = threadIdx.x; i < block_keys * chunks; i += threads) {
      const int key = i / chunks, chunk = i % chunks;
      const bool nothing = place[key] < 0 || chunk >= used;
      const T* source = nothing ? from : from + int64_t{8} * place[key] + chunk * 8;
      Bf16* row = to + key * step + chunk * 8;
      if constexpr (parts_of<T> == 1) {
        copy_async(row, source, nothing);
      } else {
        for (int at = 0; at < 8; ++at) {
          float x = nothing ? 0 : to_float(source[at]);
          for (int part = 0; part < parts_of<T>; ++part) row[part * block_keys * step + at] = take_part(x);
        }
      }
    }
  }
  end_copy_group();
}

__device__ inline uint2 two_words(const Bf16* from) {
  return *reinterpret_cast<const uint2*>(from);
}
__device__ inline uint32_t one_word(const Bf16* from) {
  return *reinterpret_cast<const uint32_t*>(from);
}

/// Whose a thread's numbers are: of query tile `tile`, which a share of the warps has, this one the
/// `warp`-th; `group` is the place of a query there (and group + 8), `in_group` that of two keys or
/// dimensions among 8.
template <int Tiles>
struct LanePlace {
  static constexpr int warps_a_tile = warps / Tiles;
  int tile = threadIdx.x / warp_size / warps_a_tile, warp = threadIdx.x / warp_size % warps_a_tile;
  int group = threadIdx.x % warp_size / 4, in_group = threadIdx.x % 4;

  __device__ int query(int half) const { return tile * tensor_queries + half * 8 + group; }
  /// First of the i-th eight keys or dimensions of the warp.
  __device__ int eight(int i) const { return 8 * (warp + warps_a_tile * i); }
};

/// Whether a tile has more queries than the first eight rows of a tensor core's operand: else nothing is read
/// for the others, which would take as much of shared memory's time.
enum class Rows { eight, sixteen };

/// Scores of the warp's query tile for its keys.
template <int Parts, int Size, Rows Used, int Tiles>
__device__ __forceinline__ void score_block(const AttentionCall& call, const Tile<Tiles>& tile,
                                            const Bf16* keys) {
  const LanePlace<Tiles> lane;
  float sum[query_parts][Tiles][4] = {};  // chains of their own: a tensor core waits for the sum it adds to
#pragma unroll
  for (int first = 0; first < (Size > 0 ? Size : tile.size); first += 16) {
    const int at = first + 4 * lane.in_group;
    uint2 key[Tiles][Parts];
#pragma unroll
    for (int i = 0; i < Tiles; ++i)
#pragma unroll
      for (int part = 0; part < Parts; ++part)
        key[i][part] =
            two_words(keys + (part * block_keys + lane.eight(i) + lane.group) * tile.key_step + at);
#pragma unroll
    for (int part = 0; part < query_parts; ++part) {
      const Bf16* query = tile.query + (part * Tile<Tiles>::queries + lane.query(0)) * tile.key_step + at;
      const uint2 low = two_words(query);
      uint2 high{0, 0};
      if constexpr (Used == Rows::sixteen) high = two_words(query + 8 * tile.key_step);
      const uint32_t a[4] = {low.x, high.x, low.y, high.y};
#pragma unroll
      for (int i = 0; i < Tiles; ++i)
#pragma unroll
        for (int other = 0; other < Parts; ++other)
          if (counts(part, other)) multiply_add(sum[part][i], a, key[i][other].x, key[i][other].y, Bf16{});
    }
  }
#pragma unroll
  for (int i = 0; i < Tiles; ++i) {
#pragma unroll
    for (int half = 0; half < (Used == Rows::sixteen ? 2 : 1); ++half) {
      const auto score = [&](int j) {
        return (sum[0][i][2 * half + j] + sum[1][i][2 * half + j] + sum[2][i][2 * half + j]) * call.scale;
      };
      float* scores = tile.scores(lane.query(half)) + lane.eight(i);
      *reinterpret_cast<float2*>(scores + 2 * lane.in_group) = {score(0), score(1)};
    }
  }
}

/// A query's result so far and that of more keys become one: `shrink` of the first, `grow` of the second.
__device__ __forceinline__ float fold(float sum, float shrink, float more, float grow) {
  return sum * shrink + more * grow;
}

/// Turns the scores of some queries for a block into weights, and moves their largest scores and masses; a
/// count of 0: the block is not the query's.  What a block yields does not depend on those before it.
template <int Queries, int Tiles>
__device__ __forceinline__ void weigh_queries(const Tile<Tiles>& tile, const int (&query)[Queries],
                                              const int (&count)[Queries]) {
  const int lane = threadIdx.x % warp_size;
  bool none = true;
#pragma unroll
  for (int q = 0; q < Queries; ++q) none = none && count[q] <= 0;
  if (none) {
#pragma unroll
    for (int q = 0; q < Queries; ++q)
      if (lane == q) tile.shrink[query[q]] = -1;
    return;
  }
  float largest[Queries], x[Queries][2], total[Queries];
#pragma unroll
  for (int q = 0; q < Queries; ++q) {
    const float2 scores = *reinterpret_cast<const float2*>(tile.scores(query[q]) + 2 * lane);
    x[q][0] = 2 * lane < count[q] ? scores.x : minus_infinity();
    x[q][1] = 2 * lane + 1 < count[q] ? scores.y : minus_infinity();
    largest[q] = larger(x[q][1], larger(x[q][0], minus_infinity()));
  }
  __syncwarp();  // weights lie where scores lay
#pragma unroll
  for (int apart = warp_size / 2; apart > 0; apart /= 2)
#pragma unroll
    for (int q = 0; q < Queries; ++q)
      largest[q] = larger(__shfl_xor_sync(all_lanes, largest[q], apart), largest[q]);
      // A query that has none gets weights and sums, too, which nobody looks at.
#pragma unroll
  for (int q = 0; q < Queries; ++q) {
    float low = exp_one(x[q][0] - largest[q]), high = exp_one(x[q][1] - largest[q]);
    total[q] = (0.0f + low) + high;
#pragma unroll
    for (int part = 0; part < query_parts; ++part) {
      const uint32_t two = two_bf16(low, high);
      reinterpret_cast<uint32_t*>(tile.weights(query[q]) + part * weight_stride)[lane] = two;
      low -= bits_as<float>(two << 16), high -= bits_as<float>(two & 0xffff0000u);
    }
  }
#pragma unroll
  for (int apart = warp_size / 2; apart > 0; apart /= 2)
#pragma unroll
    for (int q = 0; q < Queries; ++q) total[q] += __shfl_xor_sync(all_lanes, total[q], apart);
  // Lane q's is the q-th query.
  int own = query[0], own_count = count[0];
  float own_largest = largest[0], own_total = total[0];
#pragma unroll
  for (int q = 1; q < Queries; ++q) {
    if (lane != q) continue;
    own = query[q], own_count = count[q], own_largest = largest[q], own_total = total[q];
  }
  if (lane >= Queries) return;
  const float before = tile.largest[own], now = larger(own_largest, before);
  const float shrink = exp_one(before - now), grow = exp_one(own_largest - now);
  tile.shrink[own] = own_count > 0 ? shrink : -1;
  tile.grow[own] = grow;
  if (own_count <= 0) return;
  tile.mass[own] = fold(tile.mass[own], shrink, own_total, grow);
  tile.largest[own] = now;
}

/// Weighted values of the warp's query tile at eights of dimensions.
template <int Eights>
struct Sums {
  float x[Eights][4];
};

template <int Parts, int Size, Rows Used, int Tiles, int Eights>
__device__ __forceinline__ void add_block(const Tile<Tiles>& tile, const Bf16* values, Sums<Eights>& sums) {
  const LanePlace<Tiles> lane;
  const int value_row = threadIdx.x % 16;
  Sums<Eights> block = {};
#pragma unroll
  for (int at = 0; at < block_keys; at += 16) {
    uint32_t b[Parts][Eights][2];
#pragma unroll
    for (int i = 0; i < Eights; ++i) {
      if (Size == 0 && lane.eight(i) >= tile.size) continue;
#pragma unroll
      for (int other = 0; other < Parts; ++other)
        load_columns(b[other][i][0], b[other][i][1],
                     values + (other * block_keys + at + value_row) * tile.value_step + lane.eight(i));
    }
#pragma unroll
    for (int part = 0; part < query_parts; ++part) {
      const Bf16* weight = tile.weights(lane.query(0)) + part * weight_stride + at + 2 * lane.in_group;
      constexpr int eight_on = 8 * query_parts * weight_stride;
      uint32_t a[4] = {one_word(weight), 0, one_word(weight + 8), 0};
      if constexpr (Used == Rows::sixteen)
        a[1] = one_word(weight + eight_on), a[3] = one_word(weight + eight_on + 8);
#pragma unroll
      for (int i = 0; i < Eights; ++i) {
        if (Size == 0 && lane.eight(i) >= tile.size) continue;
#pragma unroll
        for (int other = 0; other < Parts; ++other)
          if (counts(part, other)) multiply_add(block.x[i], a, b[other][i][0], b[other][i][1], Bf16{});
      }
    }
  }
#pragma unroll
  for (int half = 0; half < (Used == Rows::sixteen ? 2 : 1); ++half) {
    const float shrink = tile.shrink[lane.query(half)], grow = tile.grow[lane.query(half)];
    if (shrink < 0) continue;  // none of the query's business
#pragma unroll
    for (int i = 0; i < Eights; ++i)
#pragma unroll
      for (int j = 2 * half; j < 2 * half + 2; ++j)
        sums.x[i][j] = fold(sums.x[i][j], shrink, block.x[i][j], grow);
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
