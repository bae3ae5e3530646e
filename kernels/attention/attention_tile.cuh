#pragma once

#include "kernels/attention/attention_plan.h"
#include "kernels/gpu/device.cuh"

// A tile of 16 or 32 queries against one block of 64 keys, on tensor cores yet in fp32 precision. "Weights"
// are those of the values: exp(score - largest score), not yet divided by their sum. An fp32 number has 24
// significant bits, so it is the sum of three bf16 numbers of 8 bits: its bf16 parts. Queries and weights are
// multiplied as three parts, cached keys and values as one (bf16), two (fp16) or three (fp32); products of
// parts that are below 2^-24 of the whole are left out. (In attention_plan.h a part is something else: the
// blocks of keys of a partial result.)
namespace clover::kernels::cuda {
namespace {

constexpr int warps = 8, threads = warps * warp_size;
constexpr int weight_stride = block_keys + 8;  // bf16 numbers

/// Bf16 parts of a cached number of type T.
template <class T>
constexpr int bf16_parts = 1;  // Bf16
template <>
constexpr int bf16_parts<Fp16> = 2;
template <>
constexpr int bf16_parts<float> = 3;
constexpr int query_parts = 3;  // bf16 parts of a query's or weight's number

/// Whether keys and values use the same shared memory in turn. With several parts a number, keys and
/// values of the largest heads would not fit together.
template <class T>
constexpr bool keys_values_share_memory = bf16_parts<T> > 1;

/// Whether the product of part `part` of one factor and part `other` of the other is computed.
CLOVER_HOST_DEVICE bool is_multiplied(int part, int other) {
  return part + other < query_parts;
}

/// Splits the next bf16 part off x: returns x rounded to bf16, and subtracts that from x.
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
  static constexpr int places = 3;  // blocks whose `place` is held: the present one and the next two
  Bf16* query;                      // [query_parts, queries, key_step]
  Bf16* key;                        // [stages, bf16_parts, 64, key_step]
  Bf16* value;                      // [stages, bf16_parts, 64, value_step]
  // [queries, query_parts, weight_stride] weights; before they are known, each query's 64 scores (fp32)
  Bf16* weight;
  float *largest, *exp_sum;      // [queries] largest score so far, and sum of the weights relative to it
  float *old_scale, *new_scale;  // [queries] of `fold` for the present block; old_scale < 0: skip it
  int32_t* place;  // [places, 64] offset in the cache of each key, in units of 8 elements; -1: no key
  int head, size;  // dimensions of a head, and the same rounded up to a multiple of 16
  int key_step, value_step;              // elements from one row to the next
  int key_stage_size, value_stage_size;  // elements of a stage

  template <class T, int Stages>
  CLOVER_HOST_DEVICE static int64_t bytes(int64_t head_size) {
    const int size = static_cast<int>(head_size + 15) / 16 * 16;
    const int64_t cached = keys_values_share_memory<T> ? larger_of(key_stride(size), value_stride(size))
                                                       : key_stride(size) + value_stride(size);
    const int64_t halves = query_parts * queries * key_stride(size) +
                           Stages * bf16_parts<T> * block_keys * cached +
                           query_parts * queries * weight_stride;
    return places * block_keys * 4 + halves * 2 + 4 * queries * 4;
  }
  template <class T, int Stages>
  __device__ __forceinline__ static Tile of(int64_t head_size) {
    return Tile(head_size, bf16_parts<T>, Stages, keys_values_share_memory<T>);
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
    key_stage_size = parts * block_keys * key_step;
    value_stage_size = parts * block_keys * value_step;
    place = shared_memory<int32_t>();
    query = reinterpret_cast<Bf16*>(place + places * block_keys);
    key = query + query_parts * queries * key_step;
    value = share ? key : key + stages * key_stage_size;
    weight = share ? key + larger_of(key_stage_size, value_stage_size) : value + stages * value_stage_size;
    largest = reinterpret_cast<float*>(weight + query_parts * queries * weight_stride);
    exp_sum = largest + queries;
    old_scale = exp_sum + queries;
    new_scale = old_scale + queries;
  }
};

/// The tile that a thread block works on: `rows` rows from `first_row` on, by `heads` query heads from
/// `first_head` on.
struct Work {
  const AttentionCall& call;
  const int32_t* pages;  // the sequence's row of page_table
  int64_t first_row, kv_head, first_head;
  int rows, heads;
  // 2^16 / heads, for a division by multiplication; exact because heads and queries are at most 32.
  unsigned inverse = 65536u / static_cast<unsigned>(heads) + 1;

  __device__ int queries() const { return rows * heads; }
  /// Row of the tile.
  __device__ int row_of(int query) const {
    return static_cast<int>(static_cast<unsigned>(query) * inverse >> 16);
  }
  /// row * query_heads + head, of the call.
  __device__ int64_t index_of(int query) const {
    const int row = row_of(query);
    return (first_row + row) * call.query_heads + first_head + (query - row * heads);
  }
};

/// Copies the tile's queries to shared memory, in parts. Rows of the tile without a query are not written;
/// their results are not used.
template <int Tiles>
__device__ inline void load_queries(const Work& work, const Tile<Tiles>& tile) {
  constexpr int at_once = 4;
  const int d = tile.head, count = work.queries() * tile.size;
  for (int first = threadIdx.x; first < count; first += at_once * threads) {
    float x[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int index = first + i * threads, query = index / tile.size, at = index % tile.size;
      x[i] = index < count && at < d ? work.call.q[work.index_of(query) * d + at] : 0;
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int index = first + i * threads, query = index / tile.size, at = index % tile.size;
      for (int part = 0; part < query_parts && index < count; ++part)
        tile.query[(part * Tile<Tiles>::queries + query) * tile.key_step + at] = take_part(x[i]);
    }
  }
}

/// Begins to copy a block of keys or values to shared memory, with zeros for missing keys and beyond the head
/// size, as one copy group. `Size`: the head size, if it is a constant; else 0.
template <class T, int Size, int Tiles>
__device__ __forceinline__ void load_block(const Tile<Tiles>& tile, const int32_t* place, const void* cache,
                                           Bf16* to, int step) {
  const T* from = static_cast<const T*>(cache);
  if constexpr (Size > 0 && bf16_parts<T> == 1) {
    constexpr int chunks = Size / 8, keys_at_once = threads / chunks;
    static_assert(threads % chunks == 0 && block_keys % keys_at_once == 0);
    const int first = threadIdx.x / chunks, chunk = threadIdx.x % chunks;
    const int32_t* first_place = place + first;
    Bf16* row = to + first * step + chunk * 8;
    const T* base = from + chunk * 8;
    int at[block_keys / keys_at_once];
#pragma unroll
    for (int i = 0; i < block_keys / keys_at_once; ++i) at[i] = first_place[i * keys_at_once];
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
      if constexpr (bf16_parts<T> == 1) {
        copy_async(row, source, nothing);
      } else {
        for (int at = 0; at < 8; ++at) {
          float x = nothing ? 0 : to_float(source[at]);
          for (int part = 0; part < bf16_parts<T>; ++part) row[part * block_keys * step + at] = take_part(x);
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

/// Which queries and columns a thread's numbers of multiply_add (kernels/gpu/device.cuh) belong to.
template <int Tiles>
struct LanePlace {
  static constexpr int warps_per_tile = warps / Tiles;
  int tile = threadIdx.x / warp_size / warps_per_tile;  // of 16 queries
  int warp = threadIdx.x / warp_size % warps_per_tile;  // number among the warps of that tile
  int group = threadIdx.x % warp_size / 4;              // the thread has queries group and group + 8 of it
  int in_group = threadIdx.x % 4;                       // pair of columns in each eight

  __device__ int query(int half) const { return tile * tensor_queries + half * 8 + group; }
  /// First key (of scores) or dimension (of weighted values) of the warp's i-th eight columns.
  __device__ int eight(int i) const { return 8 * (warp + warps_per_tile * i); }
};

/// How many of a tensor core's 16 rows hold queries. With eight, the others are not read from shared memory.
enum class Rows { eight, sixteen };

/// Writes the scores of the warp's tile of 16 queries, for its share of the block's keys (`Tiles` times
/// eight: the warps of a tile share 64), to tile.scores. A thread reads four neighbouring dimensions of
/// queries and keys and multiplies them as if they were those that multiply_add names: all are summed, so
/// order does not matter as long as both agree. `Parts`: bf16 parts of a key's number.
template <int Parts, int Size, Rows Used, int Tiles>
__device__ __forceinline__ void score_block(const AttentionCall& call, const Tile<Tiles>& tile,
                                            const Bf16* keys) {
  const LanePlace<Tiles> lane;
  float sum[query_parts][Tiles][4] = {};  // one for each part, so that products do not wait for each other
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
          if (is_multiplied(part, other))
            multiply_add(sum[part][i], a, key[i][other].x, key[i][other].y, Bf16{});
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

/// Merges the sum so far and the sum over more keys, each scaled to the new largest score by a factor of at
/// most 1.
__device__ __forceinline__ float fold(float sum, float old_scale, float more, float new_scale) {
  return sum * old_scale + more * new_scale;
}

/// Turns the scores of some queries for a block of keys into weights, and updates the queries' largest
/// scores, exp_sum, old_scale and new_scale.  count[q] is the number of keys of query[q]; 0: the query skips
/// the block; its weights mean nothing, and add_block leaves them out.  A block's weights are relative to its
/// own largest score, so they do not depend on the blocks before.
template <int Queries, int Tiles>
__device__ __forceinline__ void weigh_queries(const Tile<Tiles>& tile, const int (&query)[Queries],
                                              const int (&count)[Queries]) {
  const int lane = threadIdx.x % warp_size;
  bool no_keys = true;
#pragma unroll
  for (int q = 0; q < Queries; ++q) no_keys = no_keys && count[q] <= 0;
  if (no_keys) {
#pragma unroll
    for (int q = 0; q < Queries; ++q)
      if (lane == q) tile.old_scale[query[q]] = -1;
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
  __syncwarp();  // weights overwrite scores
#pragma unroll
  for (int lane_distance = warp_size / 2; lane_distance > 0; lane_distance /= 2)
#pragma unroll
    for (int q = 0; q < Queries; ++q)
      largest[q] = larger(__shfl_xor_sync(all_lanes, largest[q], lane_distance), largest[q]);
#pragma unroll
  for (int q = 0; q < Queries; ++q) {
    float low = exp_scalar(x[q][0] - largest[q]), high = exp_scalar(x[q][1] - largest[q]);
    total[q] = low + high;
#pragma unroll
    for (int part = 0; part < query_parts; ++part) {
      const uint32_t two = pack_two_bf16(low, high);
      reinterpret_cast<uint32_t*>(tile.weights(query[q]) + part * weight_stride)[lane] = two;
      low -= bits_as<float>(two << 16), high -= bits_as<float>(two & 0xffff0000u);
    }
  }
#pragma unroll
  for (int lane_distance = warp_size / 2; lane_distance > 0; lane_distance /= 2)
#pragma unroll
    for (int q = 0; q < Queries; ++q) total[q] += __shfl_xor_sync(all_lanes, total[q], lane_distance);
  // Lane q updates the q-th query.
  int own_query = query[0], own_count = count[0];
  float own_largest = largest[0], own_total = total[0];
#pragma unroll
  for (int q = 1; q < Queries; ++q) {
    if (lane != q) continue;
    own_query = query[q], own_count = count[q], own_largest = largest[q], own_total = total[q];
  }
  if (lane >= Queries) return;
  const float old_largest = tile.largest[own_query], new_largest = larger(own_largest, old_largest);
  const float old_scale = exp_scalar(old_largest - new_largest),
              new_scale = exp_scalar(own_largest - new_largest);
  tile.old_scale[own_query] = own_count > 0 ? old_scale : -1;
  tile.new_scale[own_query] = new_scale;
  if (own_count <= 0) return;
  tile.exp_sum[own_query] = fold(tile.exp_sum[own_query], old_scale, own_total, new_scale);
  tile.largest[own_query] = new_largest;
}

/// A thread's weighted values of its tile of 16 queries, for `Eights` groups of eight dimensions: x[i] is the
/// `d` of multiply_add.
template <int Eights>
struct Sums {
  float x[Eights][4];
};

/// Adds the weighted values of a block of keys to `sums`.
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
      constexpr int eight_queries_on = 8 * query_parts * weight_stride;
      uint32_t a[4] = {one_word(weight), 0, one_word(weight + 8), 0};
      if constexpr (Used == Rows::sixteen)
        a[1] = one_word(weight + eight_queries_on), a[3] = one_word(weight + eight_queries_on + 8);
#pragma unroll
      for (int i = 0; i < Eights; ++i) {
        if (Size == 0 && lane.eight(i) >= tile.size) continue;
#pragma unroll
        for (int other = 0; other < Parts; ++other)
          if (is_multiplied(part, other)) multiply_add(block.x[i], a, b[other][i][0], b[other][i][1], Bf16{});
      }
    }
  }
#pragma unroll
  for (int half = 0; half < (Used == Rows::sixteen ? 2 : 1); ++half) {
    const float old_scale = tile.old_scale[lane.query(half)], new_scale = tile.new_scale[lane.query(half)];
    if (old_scale < 0) continue;  // the query skips the block
#pragma unroll
    for (int i = 0; i < Eights; ++i)
#pragma unroll
      for (int j = 2 * half; j < 2 * half + 2; ++j)
        sums.x[i][j] = fold(sums.x[i][j], old_scale, block.x[i][j], new_scale);
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
