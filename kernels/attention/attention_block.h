#pragma once

#include "kernels/attention/attention_columns.h"

// One block of keys and values against some queries. The shapes of tiles below only decide which independent
// sums are computed side by side; each score, weight and output is summed in an order of its own.
namespace clover::kernels::cpu {
namespace {

/// Elements i .. i + 7 of key `j` of the four from `tile` on, and beside them, in lanes that have room, of
/// the one four keys on.
template <class T>
struct CacheKeys {
  CacheRows<T> rows;
  CLOVER_INLINE Wide operator()(int64_t tile, int j, int64_t i) const {
    return load_eights<Wide>(rows(tile + j) + i, rows(tile + j + tile_of_keys - 4) + i);
  }
};

/// The same from fp32 copies, which many queries use.
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

/// The sums over lanes (in sum8's order) of four vectors.
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

/// Sums of neighbouring lanes, quarters of x and y in turn.
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

template <int Q, class Keys, class Ahead>
void score(const Query* const* queries, const Keys& keys, int64_t d, int64_t count, float scale,
           const Ahead& ahead) {
  for (int64_t tile = 0; tile < count; tile += tile_of_keys) {
    ahead.ask_for_keys(tile, tile + tile_of_keys);
    score_tile<Q>(queries, keys, d, tile, scale);
  }
  ahead.ask_for_keys(count, block_size);
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

template <class Keys, class Ahead>
void score_all(Query* const* queries, const int64_t* count, int64_t total, const Keys& keys, int64_t d,
               float scale, const Ahead& ahead) {
  for_query_heads(total, [&](auto beside, int64_t first) CLOVER_INLINED {
    int64_t most = 0;
    for (int a = 0; a < beside; ++a) most = count[first + a] > most ? count[first + a] : most;
    // The next block is prefetched once, not by each of them.
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
  } else if constexpr (lane_count<Wide> == 16) {
    load_columns(keys, longest, d, group.block);
    score_columns(queries, count, total, group.block, d, call.scale, ahead);
  } else {
    score_all(queries, count, total, load_keys(CacheKeys<T>{keys}, longest, d, group.block), d, call.scale,
              ahead);
  }
  merge_block(queries, count, total, d);
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
