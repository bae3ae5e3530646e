#pragma once

#include "kernels/device/attention_plan.h"
#include "kernels/device/cuda.h"

// A tile of 16 queries against one block of 64 keys, on tensor cores yet in fp32: a number of 24 bits is the
// sum of three of bf16's 8, so queries and weights go in as three parts, cached keys and values as one
// (bf16), two (fp16) or three (fp32), and products below 2^-24 are left out.
namespace clover::kernels::cuda {
namespace {

constexpr int warps = 8, threads = warps * warp_size;
constexpr int score_stride = block_keys + 4, weight_stride = block_keys + 8;

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
CLOVER_BOTH bool counts(int part, int other) {
  return part + other < query_parts;
}

CLOVER_BOTH Bf16 take_part(float& x) {
  Bf16 part;
  from_float(x, part);
  x -= to_float(part);
  return part;
}

/// Shared memory of a tile, with room for `stages` blocks of keys and values.
class Tile {
 public:
  static constexpr int places = 3;     // blocks whose keys have been found
  Bf16 *query, *key, *value, *weight;  // [parts, 16 | 64 | 64 | 16, stride]
  float *score, *largest, *mass, *shrink;
  int32_t* place;  // [places, 64] index of each key in the cache, in chunks of 8, -1 beyond the last
  int head, size, key_step, value_step;  // head size, in whole steps of 16, elements from row to row
  int key_room, value_room;              // elements of a stage

  template <class T, int Stages>
  CLOVER_BOTH static int64_t bytes(int64_t head_size) {
    const int size = static_cast<int>(head_size + 15) / 16 * 16;
    const int64_t cached = share_room<T> ? larger_of(key_stride(size), value_stride(size))
                                         : key_stride(size) + value_stride(size);
    const int64_t halves = query_parts * tile_queries * key_stride(size) +
                           Stages * parts_of<T> * block_keys * cached +
                           query_parts * tile_queries * weight_stride;
    return places * block_keys * 4 + halves * 2 + (tile_queries * (score_stride + 3)) * 4;
  }
  template <class T, int Stages>
  __device__ __forceinline__ static Tile of(int64_t head_size) {
    return Tile(head_size, parts_of<T>, Stages, share_room<T>);
  }

 private:
  CLOVER_BOTH static int larger_of(int a, int b) { return a > b ? a : b; }
  __device__ __forceinline__ Tile(int64_t head_size, int parts, int stages, bool share) {
    head = static_cast<int>(head_size);
    size = static_cast<int>(head_size + 15) / 16 * 16;
    key_step = key_stride(size);
    value_step = value_stride(size);
    key_room = parts * block_keys * key_step;
    value_room = parts * block_keys * value_step;
    place = shared_memory<int32_t>();
    query = reinterpret_cast<Bf16*>(place + places * block_keys);
    key = query + query_parts * tile_queries * key_step;
    value = share ? key : key + stages * key_room;
    weight = share ? key + larger_of(key_room, value_room) : value + stages * value_room;
    score = reinterpret_cast<float*>(weight + query_parts * tile_queries * weight_stride);
    largest = score + tile_queries * score_stride;
    mass = largest + tile_queries;
    shrink = mass + tile_queries;
  }
};

/// What a block of threads works on: queries of `rows` rows from `first_row` by `heads` heads from
/// `first_head`.
struct Work {
  const AttentionCall& call;
  const int32_t* pages;
  int64_t first_row, kv_head, first_head;
  int rows, heads;

  __device__ int queries() const { return rows * heads; }
  __device__ int64_t row_of(int query) const { return first_row + query / heads; }
  /// Index among all rows' query heads.
  __device__ int64_t index_of(int query) const {
    return row_of(query) * call.query_heads + first_head + query % heads;
  }
};

/// First row and number of rows of the `wanted`-th tile; none when there are not so many.  Every warp finds
/// it for itself.
__device__ inline int find_tile(const AttentionCall& call, int rows_a_tile, int64_t wanted,
                                int64_t& first_row) {
  const int lane = threadIdx.x % warp_size;
  int64_t run = 0;  // where the present sequence's rows begin
  for (int64_t base = 0; base < call.rows; base += warp_size) {
    const int64_t row = base + lane;
    const bool exists = row < call.rows;
    const bool begins = exists && (row == 0 || call.sequence[row] != call.sequence[row - 1]);
    const unsigned beginnings = __ballot_sync(all_lanes, begins);
    const unsigned mine = beginnings & (all_lanes >> (warp_size - 1 - lane));
    const int64_t own_run = mine != 0 ? base + highest_bit(mine) : run;
    const unsigned tiles = __ballot_sync(all_lanes, exists && (row - own_run) % rows_a_tile == 0);
    if (beginnings != 0) run = base + highest_bit(beginnings);
    if (wanted >= count_bits(tiles)) {
      wanted -= count_bits(tiles);
      continue;
    }
    unsigned left = tiles;
    for (; wanted > 0; --wanted) left &= left - 1;
    first_row = base + highest_bit(left & (~left + 1));
    int rows = 1;
    while (rows < rows_a_tile && first_row + rows < call.rows &&
           call.sequence[first_row + rows] == call.sequence[first_row])
      ++rows;
    return rows;
  }
  return 0;
}

/// The tile's queries; what lies where there is none is never looked at.
__device__ inline void load_queries(const Work& work, const Tile& tile) {
  const int d = tile.head;
  for (int i = threadIdx.x; i < work.queries() * tile.size; i += threads) {
    const int query = i / tile.size, at = i % tile.size;
    float x = at < d ? work.call.q[work.index_of(query) * d + at] : 0;
    for (int part = 0; part < query_parts; ++part)
      tile.query[(part * tile_queries + query) * tile.key_step + at] = take_part(x);
  }
}

/// A block of keys or values to shared memory, zeros beyond the last and behind the head's end.  `Size`: of a
/// head, where it is known and whole.
template <class T, int Size>
__device__ __forceinline__ void load_block(const Tile& tile, const int32_t* place, const void* cache,
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

/// score[query, key] for the warp's eight keys.
template <int Parts, int Size>
__device__ __forceinline__ void score_block(const AttentionCall& call, const Tile& tile, const Bf16* keys) {
  const int warp = threadIdx.x / warp_size, group = threadIdx.x % warp_size / 4, in_group = threadIdx.x % 4;
  float sum[4] = {};
#pragma unroll
  for (int first = 0; first < (Size > 0 ? Size : tile.size); first += 16) {
    const int at = first + 4 * in_group;
    uint2 key[Parts];
#pragma unroll
    for (int part = 0; part < Parts; ++part)
      key[part] = two_words(keys + (part * block_keys + warp * 8 + group) * tile.key_step + at);
#pragma unroll
    for (int part = 0; part < query_parts; ++part) {
      const Bf16* query = tile.query + (part * tile_queries + group) * tile.key_step + at;
      const uint2 low = two_words(query), high = two_words(query + 8 * tile.key_step);
      const uint32_t a[4] = {low.x, high.x, low.y, high.y};
#pragma unroll
      for (int other = 0; other < Parts; ++other)
        if (counts(part, other)) multiply_add(sum, a, key[other].x, key[other].y, Bf16{});
    }
  }
  for (int i = 0; i < 4; ++i) {
    const int query = group + i / 2 * 8, key = warp * 8 + 2 * in_group + i % 2;
    tile.score[query * score_stride + key] = sum[i] * call.scale;
  }
}

/// Turns the scores of two queries into weights and moves their running maxima; a count of 0: the block is
/// not the query's.
__device__ __forceinline__ void weigh_queries(const Tile& tile, const int (&query)[2],
                                              const int (&count)[2]) {
  const int lane = threadIdx.x % warp_size;
  if (count[0] <= 0 && count[1] <= 0) {
    if (lane < 2) tile.shrink[lane == 0 ? query[0] : query[1]] = -1;
    return;
  }
  float before[2], largest[2], x[2][2], total[2] = {};
#pragma unroll
  for (int q = 0; q < 2; ++q) {
    before[q] = largest[q] = tile.largest[query[q]];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float score = tile.score[query[q] * score_stride + lane + i * warp_size];
      x[q][i] = lane + i * warp_size < count[q] ? score : minus_infinity();
      largest[q] = larger(x[q][i], largest[q]);
    }
  }
#pragma unroll
  for (int apart = warp_size / 2; apart > 0; apart /= 2)
#pragma unroll
    for (int q = 0; q < 2; ++q)
      largest[q] = larger(__shfl_xor_sync(all_lanes, largest[q], apart), largest[q]);
  // A query that has none gets weights and sums, too, which nobody looks at.
  float weight[2][2], shrink[2];
#pragma unroll
  for (int q = 0; q < 2; ++q) {
#pragma unroll
    for (int i = 0; i < 2; ++i) weight[q][i] = exp_one(x[q][i] - largest[q]);
    shrink[q] = exp_one(before[q] - largest[q]);
  }
#pragma unroll
  for (int q = 0; q < 2; ++q) total[q] = (0.0f + weight[q][0]) + weight[q][1];
  Bf16 parts[query_parts][2][2];
#pragma unroll
  for (int part = 0; part < query_parts; ++part)
#pragma unroll
    for (int q = 0; q < 2; ++q)
#pragma unroll
      for (int i = 0; i < 2; ++i) parts[part][q][i] = take_part(weight[q][i]);
#pragma unroll
  for (int part = 0; part < query_parts; ++part)
#pragma unroll
    for (int q = 0; q < 2; ++q)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        tile.weight[(part * tile_queries + query[q]) * weight_stride + lane + i * warp_size] =
            parts[part][q][i];
#pragma unroll
  for (int apart = warp_size / 2; apart > 0; apart /= 2)
#pragma unroll
    for (int q = 0; q < 2; ++q) total[q] += __shfl_xor_sync(all_lanes, total[q], apart);
  __syncwarp();  // all lanes have read what the first one writes
  if (lane != 0) return;
#pragma unroll
  for (int q = 0; q < 2; ++q) {
    const bool any = count[q] > 0;
    tile.shrink[query[q]] = any ? shrink[q] : -1;
    if (any) tile.mass[query[q]] = tile.mass[query[q]] * shrink[q] + total[q];
    if (any) tile.largest[query[q]] = largest[q];
  }
}

/// Weighted values of queries (g, g + 8) at dimensions 8 (warp + 8 i) + 2t, + 1.
template <int Pieces>
struct Sums {
  float x[Pieces][4];
};

template <int Parts, int Pieces, int Size>
__device__ __forceinline__ void add_block(const Tile& tile, const Bf16* values, Sums<Pieces>& sums) {
  const int warp = threadIdx.x / warp_size, group = threadIdx.x % warp_size / 4, in_group = threadIdx.x % 4;
  const int value_row = threadIdx.x % 16;
  Sums<Pieces> block = {};
#pragma unroll
  for (int at = 0; at < block_keys; at += 16) {
    uint32_t a[query_parts][4];
#pragma unroll
    for (int part = 0; part < query_parts; ++part) {
      const Bf16* weight = tile.weight + (part * tile_queries + group) * weight_stride + at + 2 * in_group;
      a[part][0] = one_word(weight), a[part][1] = one_word(weight + 8 * weight_stride);
      a[part][2] = one_word(weight + 8), a[part][3] = one_word(weight + 8 * weight_stride + 8);
    }
    if constexpr (Size > 0 && Parts == 1) {
      uint32_t b[Pieces][2];
#pragma unroll
      for (int piece = 0; piece < Pieces; ++piece)
        load_columns(b[piece][0], b[piece][1],
                     values + (at + value_row) * tile.value_step + 8 * (warp + warps * piece));
#pragma unroll
      for (int part = 0; part < query_parts; ++part)
#pragma unroll
        for (int piece = 0; piece < Pieces; ++piece)
          multiply_add(block.x[piece], a[part], b[piece][0], b[piece][1], Bf16{});
      continue;
    }
#pragma unroll
    for (int piece = 0; piece < Pieces; ++piece) {
      const int dimension = 8 * (warp + warps * piece);
      if (dimension >= tile.size) continue;
#pragma unroll
      for (int other = 0; other < Parts; ++other) {
        uint32_t b0, b1;
        load_columns(b0, b1, values + (other * block_keys + at + value_row) * tile.value_step + dimension);
        for (int part = 0; part < query_parts; ++part)
          if (counts(part, other)) multiply_add(block.x[piece], a[part], b0, b1, Bf16{});
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float shrink = tile.shrink[group + i / 2 * 8];
    if (shrink < 0) continue;  // none of the query's business
#pragma unroll
    for (int piece = 0; piece < Pieces; ++piece)
      sums.x[piece][i] = sums.x[piece][i] * shrink + block.x[piece][i];
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
