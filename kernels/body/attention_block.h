#pragma once

#include "kernels/body/lanes.h"
#include "kernels/cache_row.h"

// One block of keys and values against some queries.  Tiles below only decide which independent sums are
// computed side by side; each score, weight and output keeps its own order.
namespace clover::kernels::cpu {
namespace {

constexpr int64_t block_size = attention_keys;

/// A softmax over some keys: their values weighted by exp(score - largest), and the weights' sum.
struct Softmax {
  float* sum;  // [d]
  float largest;
  float mass;

  void clear(int64_t d) {
    std::memset(sum, 0, d * sizeof(float));
    largest = -__builtin_inff();
    mass = 0;
  }
};

/// One query head of one row: its softmax over the present split of keys, and over those before.
struct Query : Softmax {
  const float* q;  // [d]
  float* score;    // [block_size]
  Softmax before;
};

struct Span {
  int64_t contiguous;  // leading positions in slots 0 .. contiguous-1
  int64_t length;
  const int32_t* rest;  // slots of positions contiguous .. length-1
};

struct Group {
  const AttentionCall& call;
  const int32_t* pages;
  int64_t kv_head, heads;  // heads: query heads of one kv head
  Query* queries;          // [rows * heads]
  float* block;            // [block_size, d] keys, then values
};

/// Where the cache has a slot of the sequence, for this kv head.
CLOVER_INLINE int64_t cache_offset(const Group& group, int64_t slot) {
  const PagePlace place = place_of(slot, group.call.page_size, group.pages);
  return cache_row(group.call, place, group.kv_head) * group.call.head_size;
}

/// Keys whose scores are computed side by side.
constexpr int64_t tile_of_keys = lane_count<Wide> / 2;

/// Places of positions start .. start + count - 1; the last one's fill the last tile.
void find_block(const Group& group, const Span& span, int64_t start, int64_t count, int64_t* offsets) {
  const AttentionCall& call = group.call;
  int64_t i = 0;
  while (i < count && start + i < span.contiguous) {  // one look-up a page
    const int64_t slot = start + i;
    int64_t run = call.page_size - slot % call.page_size;
    if (run > count - i) run = count - i;
    if (run > span.contiguous - slot) run = span.contiguous - slot;
    const int64_t first = cache_offset(group, slot);
    for (int64_t j = 0; j < run; ++j) offsets[i + j] = first + j * call.head_size;
    i += run;
  }
  for (; i < count; ++i) offsets[i] = cache_offset(group, span.rest[start + i - span.contiguous]);
  for (; i % tile_of_keys != 0; ++i) offsets[i] = offsets[i - 1];
}

/// Keys or values of a block where they lie in the cache: converted anew for every use.
template <class T>
struct CacheRows {
  const T* cache;
  const int64_t* offsets;
  CLOVER_INLINE const T* operator()(int64_t j) const { return cache + offsets[j]; }
  template <CacheLevel level>
  CLOVER_INLINE void ask_for_row(int64_t j, int64_t d) const {
    for (int64_t i = 0; i < d; i += 64 / static_cast<int64_t>(sizeof(T)))
      ask_for<level>(cache + offsets[j] + i);
  }
};

/// Values in fp32, for many uses.
struct BlockRows {
  const float* block;
  int64_t d;
  CLOVER_INLINE const float* operator()(int64_t j) const { return block + j * d; }
};

template <class T>
BlockRows load_values(const CacheRows<T>& rows, int64_t count, int64_t d, float* block) {
  for (int64_t j = 0; j < count; ++j) {
    for (int64_t i = 0; i < d; i += 8) store8(block + j * d + i, load8(rows(j) + i));
  }
  return {block, d};
}

/// Elements i .. i + 7 of key `j` of the four from `tile` on, and beside them, in lanes that have room, of
/// the one four keys on.
template <class T>
struct CacheKeys {
  CacheRows<T> rows;
  CLOVER_INLINE Wide operator()(int64_t tile, int j, int64_t i) const {
    return load_eights<Wide>(rows(tile + j) + i, rows(tile + j + tile_of_keys - 4) + i);
  }
};

/// The same in fp32, as they are used, for many uses.
struct BlockKeys {
  const float* block;
  int64_t d;
  CLOVER_INLINE Wide operator()(int64_t tile, int j, int64_t i) const {
    return load_lanes<Wide>(block + tile * d + (j * d + i) * (tile_of_keys / 4));
  }
};

template <class T>
BlockKeys load_keys(const CacheKeys<T>& keys, int64_t count, int64_t d, float* block) {
  float* to = block;
  for (int64_t tile = 0; tile < count; tile += tile_of_keys) {
    for (int j = 0; j < 4; ++j) {
      for (int64_t i = 0; i < d; i += 8, to += lane_count<Wide>) store_lanes(to, keys(tile, j, i));
    }
  }
  return {block, d};
}

/// The lane sums (sum8's order) of four vectors.
CLOVER_INLINE void store_sums(const F8* x, float scale, float* to) {
#if defined(__AVX2__)
  const __m256 low = _mm256_hadd_ps((__m256)x[0], (__m256)x[1]),
               high = _mm256_hadd_ps((__m256)x[2], (__m256)x[3]);
  const __m256 halves = _mm256_hadd_ps(low, high);
  const __m128 sums = _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
  _mm_storeu_ps(to, _mm_mul_ps(sums, _mm_set1_ps(scale)));
#else
  for (int j = 0; j < 4; ++j) to[j] = sum8(x[j]) * scale;
#endif
}

/// Sums of neighbouring lanes, of x and y in turn by quarters.
CLOVER_INLINE F16 add_neighbours(F16 x, F16 y) {
  return __builtin_shufflevector(x, y, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +
         __builtin_shufflevector(x, y, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
}

/// The same of the halves of four vectors: the lower ones' four, then the upper ones'.
CLOVER_INLINE void store_sums(const F16* x, float scale, float* to) {
  const F16 quarters = add_neighbours(add_neighbours(x[0], x[1]), add_neighbours(x[2], x[3]));
  const F8 low = __builtin_shufflevector(quarters, quarters, 0, 1, 2, 3, 8, 9, 10, 11),
           high = __builtin_shufflevector(quarters, quarters, 4, 5, 6, 7, 12, 13, 14, 15);
  store8(to, (low + high) * scale);
}

template <int Q, class Keys>
CLOVER_INLINE void score_tile(const Query* const* queries, const Keys& keys, int64_t d, int64_t tile,
                              float scale) {
  Wide sum[Q][4] = {};
  for (int64_t i = 0; i < d; i += 8) {
    Wide q[Q];
    each<Q>([&](auto a) CLOVER_INLINED { q[a] = repeat_eight<Wide>(queries[a]->q + i); });
    each<4>([&](auto b) CLOVER_INLINED {
      const Wide key = keys(tile, b, i);
      each<Q>([&](auto a) CLOVER_INLINED { sum[a][b] = madd(q[a], key, sum[a][b]); });
    });
  }
  each<Q>([&](auto a) CLOVER_INLINED { store_sums(sum[a], scale, queries[a]->score + tile); });
}

/// The next block, asked for while the present one is worked on: pages lie apart, and were not read since the
/// last step.
template <class T, CacheLevel level>
struct BlockAhead {
  CacheRows<T> keys, values;
  int64_t count, d;

  static BlockAhead of(const AttentionCall& call, const int64_t* offsets, int64_t count) {
    return {{static_cast<const T*>(call.k), offsets},
            {static_cast<const T*>(call.v), offsets},
            count,
            call.head_size};
  }
  BlockAhead none() const { return {keys, values, 0, d}; }
  CLOVER_INLINE void ask_for_keys(int64_t begin, int64_t end) const {
    for (int64_t j = begin; j < end && j < count; ++j) keys.template ask_for_row<level>(j, d);
  }
  CLOVER_INLINE void ask_for_values(int64_t begin, int64_t end) const {
    for (int64_t j = begin; j < end && j < count; ++j) values.template ask_for_row<level>(j, d);
  }
  CLOVER_INLINE void ask_for_rows(int64_t begin, int64_t end) const {
    ask_for_keys(begin, end);
    ask_for_values(begin, end);
  }
};

template <int Q, class Keys, class Ahead>
void score(const Query* const* queries, const Keys& keys, int64_t d, int64_t count, float scale,
           const Ahead& ahead) {
  for (int64_t tile = 0; tile < count; tile += tile_of_keys) {
    ahead.ask_for_keys(tile, tile + tile_of_keys);
    score_tile<Q>(queries, keys, d, tile, scale);
  }
  ahead.ask_for_keys(count, block_size);
}

CLOVER_INLINE F8 add_halves_in_turn(F8 sum, F8 x) {
  return sum + x;
}
CLOVER_INLINE F8 add_halves_in_turn(F8 sum, F16 x) {
  return sum + lower_half(x) + upper_half(x);
}

/// Turns a block's scores into weights and rescales what came before.
void merge_block(Query& query, int64_t count, int64_t d) {
  constexpr int64_t step = lane_count<Wide>;
  for (int64_t j = count; j % step != 0; ++j) query.score[j] = -__builtin_inff();
  Wide best = repeat<Wide>(query.largest);
  for (int64_t j = 0; j < count; j += step) best = larger(load_lanes<Wide>(query.score + j), best);
  const float largest = max_lane(best);
  F8 mass{};
  for (int64_t j = 0; j < count; j += step) {
    const Wide weight = exp_lanes(load_lanes<Wide>(query.score + j) - largest);
    store_lanes(query.score + j, weight);
    mass = add_halves_in_turn(mass, weight);
  }
  const float shrink = exp_lanes(splat(query.largest - largest))[0];
  query.mass = query.mass * shrink + sum8(mass);
  query.largest = largest;
  for (int64_t i = 0; i < d; i += 8) store8(query.sum + i, load8(query.sum + i) * shrink);
}

/// Adds the softmax over later keys to `x`.
void merge_splits(Softmax& x, const Softmax& next, int64_t d) {
  const float top = next.largest > x.largest ? next.largest : x.largest;
  // Without keys the largest is -inf, whose difference with itself is not a number.
  const float shrink = x.largest == top ? 1.0f : exp_lanes(splat(x.largest - top))[0];
  const float next_shrink = next.largest == top ? 1.0f : exp_lanes(splat(next.largest - top))[0];
  for (int64_t i = 0; i < d; i += 8)
    store8(x.sum + i, load8(x.sum + i) * shrink + load8(next.sum + i) * next_shrink);
  x.mass = x.mass * shrink + next.mass * next_shrink;
  x.largest = top;
}

template <class Lanes, int Q, int D, class Rows, class Ahead>
CLOVER_INLINE void weigh_tile(Query* const* queries, const Rows& values, int64_t i, int64_t begin,
                              int64_t end, const Ahead& ahead) {
  constexpr int64_t step = lane_count<Lanes>;
  Lanes sum[Q][D];
  each<Q>([&](auto a) CLOVER_INLINED {
    each<D>([&](auto b) CLOVER_INLINED { sum[a][b] = load_lanes<Lanes>(queries[a]->sum + i + step * b); });
  });
  for (int64_t j = begin; j < end; ++j) {
    ahead.ask_for_values(j, j + 1);
    Lanes weight[Q];
    each<Q>([&](auto a) CLOVER_INLINED { weight[a] = repeat<Lanes>(queries[a]->score[j]); });
    each<D>([&](auto b) CLOVER_INLINED {
      const Lanes value = load_lanes<Lanes>(values(j) + i + step * b);
      each<Q>([&](auto a) CLOVER_INLINED { sum[a][b] = madd(weight[a], value, sum[a][b]); });
    });
  }
  each<Q>([&](auto a) CLOVER_INLINED {
    each<D>([&](auto b) CLOVER_INLINED { store_lanes(queries[a]->sum + i + step * b, sum[a][b]); });
  });
}

template <int Q, class Rows, class Ahead>
void weigh(Query* const* queries, const Rows& values, int64_t d, int64_t begin, int64_t end,
           const Ahead& ahead) {
  constexpr int64_t step = lane_count<Wide>;
  if (begin >= end) return;
  const Ahead nothing = ahead.none();
  const auto once = [&](int64_t i) -> const Ahead& { return i == 0 ? ahead : nothing; };
  int64_t i = 0;
  for (; i + 4 * step <= d; i += 4 * step) weigh_tile<Wide, Q, 4>(queries, values, i, begin, end, once(i));
  for (; i + step <= d; i += step) weigh_tile<Wide, Q, 1>(queries, values, i, begin, end, once(i));
  for (; i < d; i += 8) weigh_tile<F8, Q, 1>(queries, values, i, begin, end, once(i));
  ahead.ask_for_values(end, block_size);
}

/// As many query heads side by side as the registers hold.
constexpr int most_beside = lane_count<Wide> == 16 ? 6 : 3;

/// Calls body(how many, from which) for all query heads, as many at a time as possible.
template <int Most = most_beside, class Body>
CLOVER_INLINE void for_query_heads(int64_t total, const Body& body, int64_t first = 0) {
  for (; first + Most <= total; first += Most) body(Constant<Most>{}, first);
  if constexpr (Most > 1) for_query_heads<(Most + 1) / 2>(total, body, first);
}

template <class Keys, class Ahead>
void score_all(Query* const* queries, const int64_t* count, int64_t total, const Keys& keys, int64_t d,
               float scale, const Ahead& ahead) {
  for_query_heads(total, [&](auto beside, int64_t first) CLOVER_INLINED {
    int64_t most = 0;
    for (int a = 0; a < beside; ++a) most = count[first + a] > most ? count[first + a] : most;
    // The next block is asked for once, not by each of them.
    score<beside>(queries + first, keys, d, most, scale, first == 0 ? ahead : ahead.none());
  });
}

template <class Rows, class Ahead>
void weigh_all(Query* const* queries, const int64_t* count, int64_t total, const Rows& values, int64_t d,
               const Ahead& ahead) {
  for_query_heads(total, [&](auto beside, int64_t first) CLOVER_INLINED {
    int64_t all = count[first];
    for (int a = 1; a < beside; ++a) all = count[first + a] < all ? count[first + a] : all;
    weigh<beside>(queries + first, values, d, 0, all, first == 0 ? ahead : ahead.none());
    for (int a = 0; a < beside; ++a)
      weigh<1>(queries + first + a, values, d, all, count[first + a], ahead.none());
  });
}

/// One block of keys against all query heads of the `members` rows, whose counts of keys in it may differ.
template <class T, class Ahead>
void attend_block(const Group& group, const int64_t* offsets, const int* members, const int64_t* counts,
                  int64_t rows, const Ahead& ahead) {
  const AttentionCall& call = group.call;
  const int64_t d = call.head_size;
  Query* queries[attention_group_queries] = {};
  int64_t count[attention_group_queries] = {};
  int64_t total = 0, longest = 0;
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t h = 0; h < group.heads; ++h, ++total) {
      queries[total] = group.queries + members[m] * group.heads + h;
      count[total] = counts[members[m]];
    }
    if (counts[members[m]] > longest) longest = counts[members[m]];
  }
  const CacheRows<T> keys{static_cast<const T*>(call.k), offsets},
      values{static_cast<const T*>(call.v), offsets};
  const bool once = total <= 3;  // one pass over the block: no use for a copy in fp32
  if (once) {
    score_all(queries, count, total, CacheKeys<T>{keys}, d, call.scale, ahead);
  } else {
    score_all(queries, count, total, load_keys(CacheKeys<T>{keys}, longest, d, group.block), d, call.scale,
              ahead);
  }
  for (int64_t i = 0; i < total; ++i) merge_block(*queries[i], count[i], d);
  if (once) {
    weigh_all(queries, count, total, values, d, ahead);
  } else {
    weigh_all(queries, count, total, load_values(values, longest, d, group.block), d, ahead);
  }
}

/// Blocks of keys by vector arithmetic; a policy of attend_group.
template <class T>
struct VectorBlocks {
  // Two blocks' keys and values would fill a first-level cache.
  using Ahead = BlockAhead<T, CacheLevel::second>;
  VectorBlocks(int64_t /*queries*/, int64_t /*head_size*/, float* /*scratch*/) {}
  void prepare(const Group&) const {}
  void attend(const Group& group, const int64_t* offsets, const int* members, const int64_t* counts,
              int64_t rows, const Ahead& ahead) const {
    attend_block<T>(group, offsets, members, counts, rows, ahead);
  }
};

}  // namespace
}  // namespace clover::kernels::cpu
