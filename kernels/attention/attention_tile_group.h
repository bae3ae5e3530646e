#pragma once

#include "kernels/attention/attention_group.h"
#include "kernels/cpu/amx_registers.h"
#include "kernels/cpu/transpose.h"

// Attention over bf16 caches on AMX tile registers, yet with fp32 queries and weights. An fp32 number has 24
// significant bits, so it is the sum of three bf16 numbers of 8 bits: queries and weights are split into
// three such parts, whose products are added to one sum. 16 keys are multiplied by 16 query heads, the keys
// straight from the cache. Each score and each output is one chain of tile products over its own head and
// keys, whatever else is in the registers. Sizes of tile registers (register_lines and others) are in
// kernels/cpu/amx_registers.h, vectors (F32x16, U16x32) in kernels/cpu/lanes.h. Meanwhile the next block is
// prefetched: half of it while values are packed, a quarter while scores are computed, a quarter while
// outputs are.
namespace clover::kernels::cpu {
namespace {

constexpr int64_t tile_queries = register_lines, tile_keys = register_lines;
constexpr int float_parts = 3;

using TilePrefetchedBlock = PrefetchedBlock<Bf16, CacheLevel::first>;

/// Splits the next bf16 part off the numbers in x: returns them truncated to bf16, in the upper half of each
/// lane, and subtracts that from x.
CLOVER_INLINE U32x16 take_part(F32x16& x) {
  const U32x16 part = (U32x16)x & 0xffff0000u;
  x -= (F32x16)part;
  return part;
}

/// The upper 16 bits of each of 32 lanes.
CLOVER_INLINE U16x32 upper_halves(U32x16 low, U32x16 high) {
  const U16x32 a = (U16x32)low, b = (U16x32)high;
  return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37,
                                 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63);
}

/// Scratch memory in addition to Group::block, laid out as tile registers load it. `scratch` has
/// attention_tile_scratch(d) floats.
struct TileBuffers {
  char* queries;  // [groups of 16 query heads, d / 32, parts] tile registers
  char* keys;     // bf16 [4 tiles, 16 keys, d], for tiles whose keys are not consecutive in the cache
  char* values;   // [2 steps of 32 keys, d / 16] tile registers
  char* weights;  // bf16 [parts, 16 query heads, 64 keys]

  TileBuffers(float* scratch, int64_t d) {
    queries = reinterpret_cast<char*>(scratch);
    queries += (64 - reinterpret_cast<uintptr_t>(queries) % 64) % 64;
    keys = queries +
           attention_group_queries / tile_queries * (d / register_inputs) * float_parts * register_bytes;
    values = keys + block_keys * d * 2;
    weights = values + block_keys * d * 2;
  }
};

/// Splits `count` query heads, at most 16, into parts and packs these as tile registers [d / 32, parts]: a
/// line holds a pair of elements of all 16 heads.
void pack_queries(const Query* queries, int64_t count, int64_t d, char* to) {
  for (int64_t begin = 0; begin < d; begin += register_inputs, to += float_parts * register_bytes) {
    U32x16 lines[float_parts][tile_queries];
    for (int64_t n = 0; n < tile_queries; ++n) {
      F32x16 low{}, high{};
      if (n < count) {
        low = load_line<F32x16>(queries[n].q + begin);
        high = load_line<F32x16>(queries[n].q + begin + 16);
      }
      for (int part = 0; part < float_parts; ++part) {
        const U32x16 low_part = take_part(low);
        lines[part][n] = (U32x16)upper_halves(low_part, take_part(high));
      }
    }
    for (int part = 0; part < float_parts; ++part) {
      transpose(lines[part]);
      std::memcpy(to + part * register_bytes, lines[part], register_bytes);
    }
  }
}

/// Finds the tiles of 16 keys [16, d] of a block: in the cache, or in a copy (with zeros beyond `count`) if
/// the keys are not consecutive there.
void find_key_tiles(const CacheRows<Bf16>& keys, int64_t count, int64_t d, char* copies, const char** tiles) {
  for (int64_t first = 0; first < count; first += tile_keys, ++tiles, copies += tile_keys * d * 2) {
    const int64_t* offsets = keys.offsets + first;
    const int64_t tile_count = count - first < tile_keys ? count - first : tile_keys;
    bool side_by_side = tile_count == tile_keys;
    for (int64_t j = 1; j < tile_count; ++j) side_by_side &= offsets[j] == offsets[0] + j * d;
    if (side_by_side) {
      *tiles = reinterpret_cast<const char*>(keys(first));
      continue;
    }
    for (int64_t j = 0; j < tile_count; ++j) std::memcpy(copies + j * d * 2, keys(first + j), d * 2);
    std::memset(copies + tile_count * d * 2, 0, (tile_keys - tile_count) * d * 2);
    *tiles = copies;
  }
}

/// Packs a block's values as the right operand, with pairs of keys interleaved (zeros beyond `count`).
/// Returns false if a value is infinite or NaN.
bool pack_values(const CacheRows<Bf16>& values, int64_t count, int64_t d, char* to,
                 const TilePrefetchedBlock& next_block) {
  static const uint16_t zeros[register_inputs] = {};
  constexpr uint16_t exponent = 0x7f80;
  U16x32 infinite{};
  for (int64_t j = 0; j < count || j % register_inputs != 0; j += 2) {
    next_block.prefetch_rows(j / 2, j / 2 + 1);
    char* line = to + j / register_inputs * (d / 16) * register_bytes + j % register_inputs / 2 * line_bytes;
    for (int64_t i = 0; i < d; i += register_inputs, line += 2 * register_bytes) {
      const U16x32 even = load_line<U16x32>(j < count ? &values(j)[i].bits : zeros);
      const U16x32 odd = load_line<U16x32>(j + 1 < count ? &values(j + 1)[i].bits : zeros);
      infinite |= (U16x32)((even & exponent) == exponent) | (U16x32)((odd & exponent) == exponent);
      store_line(line,
                 __builtin_shufflevector(even, odd, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8,
                                         40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47));
      store_line(
          line + register_bytes,
          __builtin_shufflevector(even, odd, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                                  24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63));
    }
  }
  const U16x32 none{};
  return std::memcmp(&infinite, &none, sizeof none) == 0;
}

/// Computes the scores of 16 query heads for a block of keys; queries[n] is nullptr for a head without keys.
void score_tiles(const char* packed, const char* const* tiles, int64_t count, int64_t d, float scale,
                 Query* const* queries, const TilePrefetchedBlock& next_block) {
  const int64_t used = (count + tile_keys - 1) / tile_keys;
  unroll<4>([&](auto t) CLOVER_INLINED { zero<t>(); });
  for (int64_t i = 0; i < d; i += register_inputs, packed += float_parts * register_bytes) {
    unroll<float_parts>([&](auto part)
                            CLOVER_INLINED { load<5 + part>(packed + part * register_bytes, line_bytes); });
    unroll<4>([&](auto t) CLOVER_INLINED {
      if (t >= used) return;
      if (i < 2 * register_inputs) next_block.prefetch_rows(32 + i / 4 + 2 * t, 34 + i / 4 + 2 * t);
      load<4>(tiles[t] + i * 2, d * 2);
      unroll<float_parts>([&](auto part) CLOVER_INLINED { add_products_of_tiles<t, 4, 5 + part>(); });
    });
  }
  unroll<4>([&](auto t) CLOVER_INLINED {
    if (t >= used) return;
    alignas(64) U32x16 lines[tile_keys];
    store<t>(reinterpret_cast<float*>(lines), line_bytes);
    transpose(lines);
    for (int64_t n = 0; n < tile_queries; ++n)
      if (queries[n] != nullptr) store_line(queries[n]->score + t * tile_keys, (F32x16)lines[n] * scale);
  });
}

/// Turns `count` scores into weights, split into parts, and updates the query's largest score and exp_sum.
/// Returns the factor that rescales the query's sum so far.
float weigh_scores(Query& query, int64_t count, char* weights) {
  F32x16 score[4], best = F32x16{} + query.largest;
  unroll<4>([&](auto t) CLOVER_INLINED {
    const I32x16 key = I32x16{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + t * 16;
    const F32x16 loaded = load_line<F32x16>(query.score + t * 16);
    score[t] = key < static_cast<int32_t>(count) ? loaded : F32x16{} - __builtin_inff();
    best = score[t] > best ? score[t] : best;  // keeps `best` where a score is NaN
  });
  const float largest = max_lane(best);
  F32x16 exp_sum{};
  unroll<4>([&](auto t) CLOVER_INLINED { score[t] -= largest; });
  exp_lanes(score);
  unroll<4>([&](auto t) CLOVER_INLINED { exp_sum += score[t]; });
  for (int part = 0; part < float_parts; ++part, weights += tile_queries * block_keys * 2) {
    unroll<2>([&](auto half) CLOVER_INLINED {
      const U32x16 low = take_part(score[2 * half]);
      store_line(weights + half * line_bytes, upper_halves(low, take_part(score[2 * half + 1])));
    });
  }
  const float old_scale = exp_lanes(splat(query.largest - largest))[0];
  query.exp_sum = query.exp_sum * old_scale + sum8(lower_half(exp_sum) + upper_half(exp_sum));
  query.largest = largest;
  return old_scale;
}

/// Query::sum = sum * old_scale[n] + weights * values, for the heads that have keys.
void add_values(const TileBuffers& buffers, int64_t count, int64_t d, const float* old_scale,
                Query* const* queries, const TilePrefetchedBlock& next_block) {
  const int64_t tiles = d / 16, steps = (count + register_inputs - 1) / register_inputs;
  for (int64_t first = 0; first < tiles; first += 4) {
    const int64_t used = tiles - first < 4 ? tiles - first : 4;
    unroll<4>([&](auto t) CLOVER_INLINED { zero<t>(); });
    for (int64_t step = 0; step < steps; ++step) {
      const char* weights = buffers.weights + step * line_bytes;
      const char* values = buffers.values + (step * tiles + first) * register_bytes;
      unroll<float_parts>([&](auto part) CLOVER_INLINED {
        load<5 + part>(weights + part * tile_queries * block_keys * 2, block_keys * 2);
      });
      unroll<4>([&](auto t) CLOVER_INLINED {
        if (t >= used) return;
        if (first == 0) next_block.prefetch_rows(48 + 8 * step + 2 * t, 50 + 8 * step + 2 * t);
        load<4>(values + t * register_bytes, line_bytes);
        unroll<float_parts>([&](auto part) CLOVER_INLINED { add_products_of_tiles<t, 5 + part, 4>(); });
      });
    }
    unroll<4>([&](auto t) CLOVER_INLINED {
      if (t >= used) return;
      alignas(64) float sums[tile_queries * 16];
      store<t>(sums, line_bytes);
      for (int64_t n = 0; n < tile_queries; ++n) {
        if (queries[n] == nullptr) continue;
        float* to = queries[n]->sum + (first + t) * 16;
        store_line(to, load_line<F32x16>(to) * old_scale[n] + load_line<F32x16>(sums + n * 16));
      }
    });
  }
}

/// Computes blocks of keys with AMX tile products; a policy of attend_group.
class TileBlocks {
 public:
  using NextBlock = TilePrefetchedBlock;

  TileBlocks(int64_t queries, int64_t head_size, float* scratch)
      : buffers_(scratch, head_size), queries_(queries) {
    configure(0, 0);
  }
  ~TileBlocks() { release(); }
  TileBlocks(const TileBlocks&) = delete;
  TileBlocks& operator=(const TileBlocks&) = delete;

  /// Packs the queries; only the first call does.
  void prepare(const Group& group) {
    char* to = buffers_.queries;
    for (int64_t i = 0; i < queries_ && !prepared_; i += tile_queries, to += packed_bytes(group))
      pack_queries(group.queries + i, queries_ - i < tile_queries ? queries_ - i : tile_queries,
                   group.call.head_size, to);
    prepared_ = true;
  }

  /// See attend_block.
  void attend(const Group& group, const int64_t* offsets, const int* members, const int64_t* row_counts,
              int64_t rows, const TilePrefetchedBlock& next_block) {
    const int64_t d = group.call.head_size;
    int64_t count[attention_group_queries] = {}, longest = 0, shortest = block_keys;
    for (int64_t m = 0; m < rows; ++m) {
      const int64_t key_count = row_counts[members[m]];
      for (int64_t h = 0; h < group.heads; ++h) count[members[m] * group.heads + h] = key_count;
      if (key_count > longest) longest = key_count;
      if (key_count < shortest) shortest = key_count;
    }
    const Bf16 *k = static_cast<const Bf16*>(group.call.k), *v = static_cast<const Bf16*>(group.call.v);
    const char* tiles[block_keys / tile_keys];
    find_key_tiles({k, offsets}, longest, d, buffers_.keys, tiles);
    const bool finite = pack_values({v, offsets}, longest, d, buffers_.values, next_block);
    // A row multiplies the values of keys that it does not have by 0, which is NaN for an infinite value; so
    // rows are then computed one by one.
    if (!finite && shortest < longest) {
      for (int64_t m = 0; m < rows; ++m) attend(group, offsets, members + m, row_counts, 1, next_block);
      return;
    }
    const int64_t last = (members[rows - 1] + 1) * group.heads;
    for (int64_t first = members[0] * group.heads / tile_queries * tile_queries; first < last;
         first += tile_queries) {
      attend_sixteen(group, first, count + first, longest, tiles, next_block);
    }
  }

 private:
  static int64_t packed_bytes(const Group& group) {
    return group.call.head_size / register_inputs * float_parts * register_bytes;
  }

  /// Attention of 16 query heads from head `first` of the group on.
  void attend_sixteen(const Group& group, int64_t first, const int64_t* count, int64_t longest,
                      const char* const* tiles, const TilePrefetchedBlock& next_block) {
    const int64_t d = group.call.head_size;
    Query* queries[tile_queries];
    bool any = false;
    for (int64_t n = 0; n < tile_queries; ++n) {
      const bool has_keys = first + n < attention_group_queries && count[n] > 0;
      queries[n] = has_keys ? group.queries + first + n : nullptr;
      any |= has_keys;
    }
    if (!any) return;
    score_tiles(buffers_.queries + first / tile_queries * packed_bytes(group), tiles, longest, d,
                group.call.scale, queries, next_block);
    float old_scale[tile_queries] = {};
    for (int64_t n = 0; n < tile_queries; ++n)
      if (queries[n] != nullptr)
        old_scale[n] = weigh_scores(*queries[n], count[n], buffers_.weights + n * block_keys * 2);
    add_values(buffers_, longest, d, old_scale, queries, next_block);
  }

  TileBuffers buffers_;
  int64_t queries_;
  bool prepared_ = false;
};

void tile_attention_group(const AttentionCall& call, const AttentionItem& item, const AttentionItem* next,
                          const AttentionSplits& splits, float* scratch) {
  const bool fits = call.cache == Element::bf16 && call.head_size % register_inputs == 0;
  (fits ? attend_group<TileBlocks> : attention_group)(call, item, next, splits, scratch);
}

}  // namespace
}  // namespace clover::kernels::cpu
