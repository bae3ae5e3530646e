#pragma once

#include "kernels/attention/attention_rows.h"
#include "kernels/cpu/transpose.h"

// Scores of many queries: keys are transposed once, so that a register holds one element of sixteen keys and
// no sum goes across lanes. Each score is summed in the same order as in attention_block.h: element i belongs
// to partial sum i % 8, and the eight are added as sum8 adds its lanes.
namespace clover::kernels::cpu {
namespace {

/// Transposes `count` keys: writes element i of key j to columns[i * block_keys + j]. Columns beyond the last
/// key get arbitrary numbers.
template <class T>
void load_columns(const CacheRows<T>& keys, int64_t count, int64_t d, float* columns) {
  for (int64_t first = 0; first < count; first += 16) {
    for (int64_t i = 0; i < d; i += 16) {
      const int64_t elements = d - i < 16 ? 8 : 16;
      U32x16 lines[16];
      unroll<16>([&](auto j) CLOVER_INLINED {
        const T* key = keys(first + j < count ? first + j : count - 1) + i;
        lines[j] = (U32x16)(elements == 16 ? load16(key) : join(load8(key), F32x8{}));
      });
      transpose(lines);
      float* to = columns + i * block_keys + first;
      unroll<8>([&](auto j) CLOVER_INLINED { store_line(to + j * block_keys, lines[j]); });
      if (elements == 16)
        unroll<8>([&](auto j) CLOVER_INLINED { store_line(to + (8 + j) * block_keys, lines[8 + j]); });
    }
  }
}

/// Scores of 16 * V keys for Q queries, two of the eight partial sums at a time. `columns` points to the
/// first of these keys, which is key `first` of the block.
template <int Q, int V>
void score_column_tile(const Query* const* queries, const float* columns, int64_t d, int64_t first,
                       float scale) {
  F32x16 lower[Q][V], upper[Q][V];  // the sums of partial sums 0 .. 3 and 4 .. 7
  unroll<4>([&](auto pair) CLOVER_INLINED {
    F32x16 sum[2][Q][V] = {};
    for (int64_t i = 2 * pair; i < d; i += 8) {
      unroll<2>([&](auto odd) CLOVER_INLINED {
        F32x16 key[V];
        unroll<V>([&](auto v) CLOVER_INLINED {
          key[v] = load_line<F32x16>(columns + (i + odd) * block_keys + 16 * v);
        });
        unroll<Q>([&](auto a) CLOVER_INLINED {
          const F32x16 q = broadcast<F32x16>(queries[a]->q[i + odd]);
          unroll<V>([&](auto v) CLOVER_INLINED { sum[odd][a][v] = madd(q, key[v], sum[odd][a][v]); });
        });
      });
    }
    unroll<Q>([&](auto a) CLOVER_INLINED {
      unroll<V>([&](auto v) CLOVER_INLINED {
        const F32x16 both = sum[0][a][v] + sum[1][a][v];
        if constexpr (pair == 0) lower[a][v] = both;
        if constexpr (pair == 1) lower[a][v] += both;
        if constexpr (pair == 2) upper[a][v] = both;
        if constexpr (pair == 3)
          store_line(queries[a]->score + first + 16 * v, (lower[a][v] + (upper[a][v] + both)) * scale);
      });
    });
  });
}

/// Scores of `query_count` queries, key_counts[i] keys for query i; meanwhile the keys of the next block are
/// prefetched.
template <class NextBlock>
void score_columns(const Query* const* queries, const int64_t* key_counts, int64_t query_count,
                   const float* columns, int64_t d, float scale, const NextBlock& next_block) {
  for_query_heads<3>(query_count, [&](auto heads, int64_t begin) CLOVER_INLINED {
    const int64_t end = begin + heads;
    next_block.prefetch_keys(begin * block_keys / query_count, end * block_keys / query_count);
    int64_t max_count = 0, first = 0;
    for (int64_t a = begin; a < end; ++a) max_count = key_counts[a] > max_count ? key_counts[a] : max_count;
    for (; first + 48 < max_count; first += 64)
      score_column_tile<heads, 4>(queries + begin, columns + first, d, first, scale);
    for (; first + 16 < max_count; first += 32)
      score_column_tile<heads, 2>(queries + begin, columns + first, d, first, scale);
    for (; first < max_count; first += 16)
      score_column_tile<heads, 1>(queries + begin, columns + first, d, first, scale);
  });
}

}  // namespace
}  // namespace clover::kernels::cpu
