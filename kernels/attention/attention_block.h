#pragma once

#include "kernels/attention/attention_columns.h"

// Attention of some queries to one block of keys and values, with vector instructions. Tile shapes decide
// only which independent sums are computed at once: the order within each sum is the same for all of them.
// Template arguments: Q queries, D vectors (F32xN, kernels/cpu/lanes.h) of a head's dimensions. A tile of
// keys is keys_per_tile successive keys.
namespace clover::kernels::cpu {
namespace {

/// Elements i .. i + 7 of key number `tile` + j (j < 4) of the block, where `tile` is the first key of a
/// tile. A vector of 16 lanes also holds those of key `tile` + j + 4, in its upper half.
template <class T>
struct CacheKeys {
  CacheRows<T> rows;
  CLOVER_INLINE F32xN operator()(int64_t tile, int j, int64_t i) const {
    return load8_or_pair<F32xN>(rows(tile + j) + i, rows(tile + j + keys_per_tile - 4) + i);
  }
};

/// The same from copies in fp32 (load_keys), for many queries.
struct BlockKeys {
  const float* block;
  int64_t d;
  CLOVER_INLINE F32xN operator()(int64_t tile, int j, int64_t i) const {
    return load_lanes<F32xN>(block + tile * d + (j * d + i) * (keys_per_tile / 4));
  }
};

/// Copies keys in the order in which BlockKeys reads them.
template <class T>
BlockKeys load_keys(const CacheKeys<T>& keys, int64_t count, int64_t d, float* block) {
  float* to = block;
  for (int64_t tile = 0; tile < count; tile += keys_per_tile) {
    for (int j = 0; j < 4; ++j) {
      for (int64_t i = 0; i < d; i += 8, to += lane_count<F32xN>) store_lanes(to, keys(tile, j, i));
    }
  }
  return {block, d};
}

/// Writes scale * the sum over lanes (in sum8's order) of each of four vectors to `to` [4].
CLOVER_INLINE void store_sums(const F32x8* x, float scale, float* to) {
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

/// Sums of neighbouring lanes: each quarter of the result has two sums of x, then two of y.
CLOVER_INLINE F32x16 add_neighbours(F32x16 x, F32x16 y) {
  return __builtin_shufflevector(x, y, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +
         __builtin_shufflevector(x, y, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
}

/// The same for the halves of four vectors: to[0 .. 3] from the lower halves, to[4 .. 7] from the upper ones.
CLOVER_INLINE void store_sums(const F32x16* x, float scale, float* to) {
  const F32x16 quarters = add_neighbours(add_neighbours(x[0], x[1]), add_neighbours(x[2], x[3]));
  const F32x8 low = __builtin_shufflevector(quarters, quarters, 0, 1, 2, 3, 8, 9, 10, 11),
              high = __builtin_shufflevector(quarters, quarters, 4, 5, 6, 7, 12, 13, 14, 15);
  store8(to, (low + high) * scale);
}

/// Scores of keys_per_tile keys for Q queries.
template <int Q, class Keys>
CLOVER_INLINE void score_tile(const Query* const* queries, const Keys& keys, int64_t d, int64_t tile,
                              float scale) {
  F32xN sum[Q][4] = {};
  for (int64_t i = 0; i < d; i += 8) {
    F32xN q[Q];
    unroll<Q>([&](auto a) CLOVER_INLINED { q[a] = broadcast8<F32xN>(queries[a]->q + i); });
    unroll<4>([&](auto b) CLOVER_INLINED {
      const F32xN key = keys(tile, b, i);
      unroll<Q>([&](auto a) CLOVER_INLINED { sum[a][b] = madd(q[a], key, sum[a][b]); });
    });
  }
  unroll<Q>([&](auto a) CLOVER_INLINED { store_sums(sum[a], scale, queries[a]->score + tile); });
}

/// Scores of `count` keys for Q queries.
template <int Q, class Keys, class NextBlock>
void score(const Query* const* queries, const Keys& keys, int64_t d, int64_t count, float scale,
           const NextBlock& next_block) {
  for (int64_t tile = 0; tile < count; tile += keys_per_tile) {
    next_block.prefetch_keys(tile, tile + keys_per_tile);
    score_tile<Q>(queries, keys, d, tile, scale);
  }
  next_block.prefetch_keys(count, block_keys);
}

/// Adds the weighted values of keys [begin, end) to the sums of Q queries, at D vectors of dimensions from i
/// on.
template <class Lanes, int Q, int D, class Rows, class NextBlock>
CLOVER_INLINE void add_values_tile(Query* const* queries, const Rows& values, int64_t i, int64_t begin,
                                   int64_t end, const NextBlock& next_block) {
  constexpr int64_t step = lane_count<Lanes>;
  Lanes sum[Q][D];
  unroll<Q>([&](auto a) CLOVER_INLINED {
    unroll<D>([&](auto b) CLOVER_INLINED { sum[a][b] = load_lanes<Lanes>(queries[a]->sum + i + step * b); });
  });
  for (int64_t j = begin; j < end; ++j) {
    next_block.prefetch_values(j, j + 1);
    Lanes weight[Q];
    unroll<Q>([&](auto a) CLOVER_INLINED { weight[a] = broadcast<Lanes>(queries[a]->score[j]); });
    unroll<D>([&](auto b) CLOVER_INLINED {
      const Lanes value = load_lanes<Lanes>(values(j) + i + step * b);
      unroll<Q>([&](auto a) CLOVER_INLINED { sum[a][b] = madd(weight[a], value, sum[a][b]); });
    });
  }
  unroll<Q>([&](auto a) CLOVER_INLINED {
    unroll<D>([&](auto b) CLOVER_INLINED { store_lanes(queries[a]->sum + i + step * b, sum[a][b]); });
  });
}

/// The same for all d dimensions.
template <int Q, class Rows, class NextBlock>
void add_weighted_values(Query* const* queries, const Rows& values, int64_t d, int64_t begin, int64_t end,
                         const NextBlock& next_block) {
  constexpr int64_t step = lane_count<F32xN>;
  if (begin >= end) return;
  const NextBlock no_block = next_block.none();
  const auto prefetch_for = [&](int64_t i) -> const NextBlock& { return i == 0 ? next_block : no_block; };
  int64_t i = 0;
  for (; i + 4 * step <= d; i += 4 * step)
    add_values_tile<F32xN, Q, 4>(queries, values, i, begin, end, prefetch_for(i));
  for (; i + step <= d; i += step)
    add_values_tile<F32xN, Q, 1>(queries, values, i, begin, end, prefetch_for(i));
  for (; i < d; i += 8) add_values_tile<F32x8, Q, 1>(queries, values, i, begin, end, prefetch_for(i));
  next_block.prefetch_values(end, block_keys);
}

/// Scores of `query_count` queries, key_counts[i] keys for query i.
template <class Keys, class NextBlock>
void score_all(Query* const* queries, const int64_t* key_counts, int64_t query_count, const Keys& keys,
               int64_t d, float scale, const NextBlock& next_block) {
  for_query_heads(query_count, [&](auto heads, int64_t first) CLOVER_INLINED {
    int64_t max_count = 0;
    for (int a = 0; a < heads; ++a)
      max_count = key_counts[first + a] > max_count ? key_counts[first + a] : max_count;
    // Only the first call prefetches the next block.
    score<heads>(queries + first, keys, d, max_count, scale, first == 0 ? next_block : next_block.none());
  });
}

/// Adds the weighted values of a block to the sums of `query_count` queries, key_counts[i] keys for query i.
template <class Rows, class NextBlock>
void add_values_of_all(Query* const* queries, const int64_t* key_counts, int64_t query_count,
                       const Rows& values, int64_t d, const NextBlock& next_block) {
  for_query_heads(query_count, [&](auto heads, int64_t first) CLOVER_INLINED {
    int64_t common_count = key_counts[first];  // keys that all of these heads have
    for (int a = 1; a < heads; ++a)
      common_count = key_counts[first + a] < common_count ? key_counts[first + a] : common_count;
    add_weighted_values<heads>(queries + first, values, d, 0, common_count,
                               first == 0 ? next_block : next_block.none());
    for (int a = 0; a < heads; ++a)
      add_weighted_values<1>(queries + first + a, values, d, common_count, key_counts[first + a],
                             next_block.none());
  });
}

/// Attention to one block of keys by all query heads of `rows` rows of the group, whose numbers are members
/// [rows]: row members[m] attends to the first row_counts[members[m]] keys. `offsets` are those of find_block
/// for the row with the most keys.
template <class T, class NextBlock>
void attend_block(const Group& group, const int64_t* offsets, const int* members, const int64_t* row_counts,
                  int64_t rows, const NextBlock& next_block) {
  const AttentionCall& call = group.call;
  const int64_t d = call.head_size;
  Query* queries[attention_group_queries] = {};
  int64_t key_counts[attention_group_queries] = {};
  int64_t query_count = 0, longest = 0;
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t h = 0; h < group.heads; ++h, ++query_count) {
      queries[query_count] = group.queries + members[m] * group.heads + h;
      key_counts[query_count] = row_counts[members[m]];
    }
    if (row_counts[members[m]] > longest) longest = row_counts[members[m]];
  }
  const CacheRows<T> keys{static_cast<const T*>(call.k), offsets},
      values{static_cast<const T*>(call.v), offsets};
  const bool single_read =
      query_count <= 3;  // so few queries read the block once, so that a copy in fp32 does not pay
  if (single_read) {
    score_all(queries, key_counts, query_count, CacheKeys<T>{keys}, d, call.scale, next_block);
  } else if constexpr (lane_count<F32xN> == 16) {
    load_columns(keys, longest, d, group.block);
    score_columns(queries, key_counts, query_count, group.block, d, call.scale, next_block);
  } else {
    score_all(queries, key_counts, query_count, load_keys(CacheKeys<T>{keys}, longest, d, group.block), d,
              call.scale, next_block);
  }
  merge_block(queries, key_counts, query_count, d);
  if (single_read) {
    add_values_of_all(queries, key_counts, query_count, values, d, next_block);
  } else {
    add_values_of_all(queries, key_counts, query_count, load_values(values, longest, d, group.block), d,
                      next_block);
  }
}

/// Computes blocks of keys with vector instructions; a policy of attend_group.
template <class T>
struct VectorBlocks {
  // The second-level cache, because keys and values of two blocks would fill the first level.
  using NextBlock = PrefetchedBlock<T, CacheLevel::second>;
  VectorBlocks(int64_t /*queries*/, int64_t /*head_size*/, float* /*scratch*/) {}
  void prepare(const Group&) const {}
  void attend(const Group& group, const int64_t* offsets, const int* members, const int64_t* row_counts,
              int64_t rows, const NextBlock& next_block) const {
    attend_block<T>(group, offsets, members, row_counts, rows, next_block);
  }
};

}  // namespace
}  // namespace clover::kernels::cpu
