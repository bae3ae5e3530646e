#pragma once

#include "kernels/attention/attention_group.h"
#include "kernels/cpu/amx_registers.h"
#include "kernels/cpu/transpose.h"

// Attention over bf16 caches on AMX tile registers, yet with fp32 queries and weights: a number of 24 bits is
// the sum of three bf16 numbers of 8, so queries and weights are split into three parts whose products are
// added to one sum. Keys are multiplied as they lie in the cache, 16 of them by 16 query heads; each score
// and each output is one chain of tile products over its own head and keys, whatever else is in the
// registers. The next block is prefetched meanwhile: half of it while values are packed, a quarter each while
// scores and outputs are computed.
namespace clover::kernels::cpu {
namespace {

constexpr int64_t tile_queries = register_lines, tile_keys = register_lines;
constexpr int float_parts = 3;

using TileAhead = BlockAhead<Bf16, CacheLevel::first>;

/// Takes the eight leading bits of x's mantissa off x, as a bf16 in the upper half of each lane.
CLOVER_INLINE U16 take_part(F16& x) {
  const U16 part = (U16)x & 0xffff0000u;
  x -= (F16)part;
  return part;
}

/// The upper 16 bits of each of 32 lanes.
CLOVER_INLINE H32 upper_halves(U16 low, U16 high) {
  const H32 a = (H32)low, b = (H32)high;
  return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37,
                                 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63);
}

/// Scratch memory for a block of keys besides Group::block, all of it laid out as tile registers load it.
struct TileRoom {
  char* queries;  // [groups of 16, d / 32, parts]
  char* keys;     // [4 tiles of 16, 16, d] of those that the cache does not have side by side
  char* values;   // [2 steps of 32 keys, d / 16]
  char* weights;  // [parts, 16 query heads, 64 keys]

  TileRoom(float* scratch, int64_t d) {
    queries = reinterpret_cast<char*>(scratch);
    queries += (64 - reinterpret_cast<uintptr_t>(queries) % 64) % 64;
    keys = queries +
           attention_group_queries / tile_queries * (d / register_inputs) * float_parts * register_bytes;
    values = keys + block_size * d * 2;
    weights = values + block_size * d * 2;
  }
};

/// Splits sixteen query heads, from the first on, into parts: lines are pairs of elements, columns query
/// heads.
void pack_queries(const Query* queries, int64_t count, int64_t d, char* to) {
  for (int64_t begin = 0; begin < d; begin += register_inputs, to += float_parts * register_bytes) {
    U16 lines[float_parts][tile_queries];
    for (int64_t n = 0; n < tile_queries; ++n) {
      F16 low{}, high{};
      if (n < count) {
        low = load_line<F16>(queries[n].q + begin);
        high = load_line<F16>(queries[n].q + begin + 16);
      }
      for (int part = 0; part < float_parts; ++part) {
        const U16 low_part = take_part(low);
        lines[part][n] = (U16)upper_halves(low_part, take_part(high));
      }
    }
    for (int part = 0; part < float_parts; ++part) {
      transpose(lines[part]);
      std::memcpy(to + part * register_bytes, lines[part], register_bytes);
    }
  }
}

/// Finds tiles of 16 keys [16, d]: in the cache, or, where the keys are not side by side there, in a copy
/// (zeros beyond `count`).
void find_key_tiles(const CacheRows<Bf16>& keys, int64_t count, int64_t d, char* copies, const char** tiles) {
  for (int64_t first = 0; first < count; first += tile_keys, ++tiles, copies += tile_keys * d * 2) {
    const int64_t* offsets = keys.offsets + first;
    const int64_t here = count - first < tile_keys ? count - first : tile_keys;
    bool side_by_side = here == tile_keys;
    for (int64_t j = 1; j < here; ++j) side_by_side &= offsets[j] == offsets[0] + j * d;
    if (side_by_side) {
      *tiles = reinterpret_cast<const char*>(keys(first));
      continue;
    }
    for (int64_t j = 0; j < here; ++j) std::memcpy(copies + j * d * 2, keys(first + j), d * 2);
    std::memset(copies + here * d * 2, 0, (tile_keys - here) * d * 2);
    *tiles = copies;
  }
}

/// Packs a block's values as the second operand, pairs of keys side by side (zeros beyond `count`). False if
/// one of them is infinite or NaN.
bool pack_values(const CacheRows<Bf16>& values, int64_t count, int64_t d, char* to, const TileAhead& ahead) {
  static const uint16_t zeros[register_inputs] = {};
  constexpr uint16_t exponent = 0x7f80;
  H32 infinite{};
  for (int64_t j = 0; j < count || j % register_inputs != 0; j += 2) {
    ahead.ask_for_rows(j / 2, j / 2 + 1);
    char* line = to + j / register_inputs * (d / 16) * register_bytes + j % register_inputs / 2 * line_bytes;
    for (int64_t i = 0; i < d; i += register_inputs, line += 2 * register_bytes) {
      const H32 even = load_line<H32>(j < count ? &values(j)[i].bits : zeros);
      const H32 odd = load_line<H32>(j + 1 < count ? &values(j + 1)[i].bits : zeros);
      infinite |= (H32)((even & exponent) == exponent) | (H32)((odd & exponent) == exponent);
      store_line(line,
                 __builtin_shufflevector(even, odd, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8,
                                         40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47));
      store_line(
          line + register_bytes,
          __builtin_shufflevector(even, odd, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                                  24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63));
    }
  }
  const H32 none{};
  return std::memcmp(&infinite, &none, sizeof none) == 0;
}

/// Computes sixteen query heads' scores of a block of keys into score[]; a head that has none is nullptr.
void score_tiles(const char* packed, const char* const* tiles, int64_t count, int64_t d, float scale,
                 Query* const* queries, const TileAhead& ahead) {
  const int64_t used = (count + tile_keys - 1) / tile_keys;
  each<4>([&](auto t) CLOVER_INLINED { zero<t>(); });
  for (int64_t i = 0; i < d; i += register_inputs, packed += float_parts * register_bytes) {
    each<float_parts>([&](auto part)
                          CLOVER_INLINED { load<5 + part>(packed + part * register_bytes, line_bytes); });
    each<4>([&](auto t) CLOVER_INLINED {
      if (t >= used) return;
      if (i < 2 * register_inputs) ahead.ask_for_rows(32 + i / 4 + 2 * t, 34 + i / 4 + 2 * t);
      load<4>(tiles[t] + i * 2, d * 2);
      each<float_parts>([&](auto part) CLOVER_INLINED { add_products_of_tiles<t, 4, 5 + part>(); });
    });
  }
  each<4>([&](auto t) CLOVER_INLINED {
    if (t >= used) return;
    alignas(64) U16 lines[tile_keys];
    store<t>(reinterpret_cast<float*>(lines), line_bytes);
    transpose(lines);
    for (int64_t n = 0; n < tile_queries; ++n)
      if (queries[n] != nullptr) store_line(queries[n]->score + t * tile_keys, (F16)lines[n] * scale);
  });
}

/// Turns `count` scores into weights, split into parts for the tiles; returns the factor for the result so
/// far.
float weigh_scores(Query& query, int64_t count, char* weights) {
  F16 score[4], best = F16{} + query.largest;
  each<4>([&](auto t) CLOVER_INLINED {
    const I16 key = I16{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + t * 16;
    const F16 all = load_line<F16>(query.score + t * 16);
    score[t] = key < static_cast<int32_t>(count) ? all : F16{} - __builtin_inff();
    best = score[t] > best ? score[t] : best;  // keeps `best` where a score is NaN
  });
  const float largest = max_lane(best);
  F16 mass{};
  each<4>([&](auto t) CLOVER_INLINED { score[t] -= largest; });
  exp_lanes(score);
  each<4>([&](auto t) CLOVER_INLINED { mass += score[t]; });
  for (int part = 0; part < float_parts; ++part, weights += tile_queries * block_size * 2) {
    each<2>([&](auto half) CLOVER_INLINED {
      const U16 low = take_part(score[2 * half]);
      store_line(weights + half * line_bytes, upper_halves(low, take_part(score[2 * half + 1])));
    });
  }
  const float shrink = exp_lanes(splat(query.largest - largest))[0];
  query.mass = query.mass * shrink + sum8(lower_half(mass) + upper_half(mass));
  query.largest = largest;
  return shrink;
}

/// sum = sum * shrink + weights * values, for the heads that have weights.
void add_values(const TileRoom& room, int64_t count, int64_t d, const float* shrink, Query* const* queries,
                const TileAhead& ahead) {
  const int64_t tiles = d / 16, steps = (count + register_inputs - 1) / register_inputs;
  for (int64_t first = 0; first < tiles; first += 4) {
    const int64_t used = tiles - first < 4 ? tiles - first : 4;
    each<4>([&](auto t) CLOVER_INLINED { zero<t>(); });
    for (int64_t step = 0; step < steps; ++step) {
      const char* weights = room.weights + step * line_bytes;
      const char* values = room.values + (step * tiles + first) * register_bytes;
      each<float_parts>([&](auto part) CLOVER_INLINED {
        load<5 + part>(weights + part * tile_queries * block_size * 2, block_size * 2);
      });
      each<4>([&](auto t) CLOVER_INLINED {
        if (t >= used) return;
        if (first == 0) ahead.ask_for_rows(48 + 8 * step + 2 * t, 50 + 8 * step + 2 * t);
        load<4>(values + t * register_bytes, line_bytes);
        each<float_parts>([&](auto part) CLOVER_INLINED { add_products_of_tiles<t, 5 + part, 4>(); });
      });
    }
    each<4>([&](auto t) CLOVER_INLINED {
      if (t >= used) return;
      alignas(64) float sums[tile_queries * 16];
      store<t>(sums, line_bytes);
      for (int64_t n = 0; n < tile_queries; ++n) {
        if (queries[n] == nullptr) continue;
        float* to = queries[n]->sum + (first + t) * 16;
        store_line(to, load_line<F16>(to) * shrink[n] + load_line<F16>(sums + n * 16));
      }
    });
  }
}

/// Blocks of keys by tile products; a policy of attend_group.
class TileBlocks {
 public:
  using Ahead = TileAhead;

  TileBlocks(int64_t queries, int64_t head_size, float* scratch)
      : room_(scratch, head_size), queries_(queries) {
    configure(0, 0);
  }
  ~TileBlocks() { release(); }
  TileBlocks(const TileBlocks&) = delete;
  TileBlocks& operator=(const TileBlocks&) = delete;

  /// Packs the queries, the first time.
  void prepare(const Group& group) {
    char* to = room_.queries;
    for (int64_t i = 0; i < queries_ && !prepared_; i += tile_queries, to += packed_bytes(group))
      pack_queries(group.queries + i, queries_ - i < tile_queries ? queries_ - i : tile_queries,
                   group.call.head_size, to);
    prepared_ = true;
  }

  /// See attend_block.
  void attend(const Group& group, const int64_t* offsets, const int* members, const int64_t* counts,
              int64_t rows, const TileAhead& ahead) {
    const int64_t d = group.call.head_size;
    int64_t count[attention_group_queries] = {}, longest = 0, shortest = block_size;
    for (int64_t m = 0; m < rows; ++m) {
      const int64_t own = counts[members[m]];
      for (int64_t h = 0; h < group.heads; ++h) count[members[m] * group.heads + h] = own;
      if (own > longest) longest = own;
      if (own < shortest) shortest = own;
    }
    const Bf16 *k = static_cast<const Bf16*>(group.call.k), *v = static_cast<const Bf16*>(group.call.v);
    const char* tiles[block_size / tile_keys];
    find_key_tiles({k, offsets}, longest, d, room_.keys, tiles);
    const bool finite = pack_values({v, offsets}, longest, d, room_.values, ahead);
    // Values of keys that a row does not have are multiplied by zero, which an infinity would not survive.
    if (!finite && shortest < longest) {
      for (int64_t m = 0; m < rows; ++m) attend(group, offsets, members + m, counts, 1, ahead);
      return;
    }
    const int64_t last = (members[rows - 1] + 1) * group.heads;
    for (int64_t first = members[0] * group.heads / tile_queries * tile_queries; first < last;
         first += tile_queries) {
      attend_sixteen(group, first, count + first, longest, tiles, ahead);
    }
  }

 private:
  static int64_t packed_bytes(const Group& group) {
    return group.call.head_size / register_inputs * float_parts * register_bytes;
  }

  void attend_sixteen(const Group& group, int64_t first, const int64_t* count, int64_t longest,
                      const char* const* tiles, const TileAhead& ahead) {
    const int64_t d = group.call.head_size;
    Query* queries[tile_queries];
    bool any = false;
    for (int64_t n = 0; n < tile_queries; ++n) {
      const bool has_keys = first + n < attention_group_queries && count[n] > 0;
      queries[n] = has_keys ? group.queries + first + n : nullptr;
      any |= has_keys;
    }
    if (!any) return;
    score_tiles(room_.queries + first / tile_queries * packed_bytes(group), tiles, longest, d,
                group.call.scale, queries, ahead);
    float shrink[tile_queries] = {};
    for (int64_t n = 0; n < tile_queries; ++n)
      if (queries[n] != nullptr)
        shrink[n] = weigh_scores(*queries[n], count[n], room_.weights + n * block_size * 2);
    add_values(room_, longest, d, shrink, queries, ahead);
  }

  TileRoom room_;
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
