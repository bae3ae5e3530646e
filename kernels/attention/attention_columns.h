#pragma once

#include "kernels/attention/attention_rows.h"
#include "kernels/cpu/transpose.h"

// Scores of many queries: keys are transposed once, so that a register holds one element of sixteen keys and
// no sum goes across lanes. Each score is summed in the same order as in attention_block.h: element i belongs
// to partial sum i % 8, and the eight are added as sum8 adds its lanes.
namespace clover::kernels::cpu {
namespace {

/// Writes element i of key j to columns[i * block_size + j]. What is behind the last key does not matter.
template <class T>
void load_columns(const CacheRows<T>& keys, int64_t count, int64_t d, float* columns) {
  for (int64_t first = 0; first < count; first += 16) {
    for (int64_t i = 0; i < d; i += 16) {
      const int64_t elements = d - i < 16 ? 8 : 16;
      U16 lines[16];
      each<16>([&](auto j) CLOVER_INLINED {
        const T* key = keys(first + j < count ? first + j : count - 1) + i;
        lines[j] = (U16)(elements == 16 ? load16(key) : join(load8(key), F8{}));
      });
      transpose(lines);
      float* to = columns + i * block_size + first;
      each<8>([&](auto j) CLOVER_INLINED { store_line(to + j * block_size, lines[j]); });
      if (elements == 16)
        each<8>([&](auto j) CLOVER_INLINED { store_line(to + (8 + j) * block_size, lines[8 + j]); });
    }
  }
}

/// Scores of V times sixteen keys, from the first of `columns` on, for Q queries, two of the eight partial
/// sums at a time.
template <int Q, int V>
void score_column_tile(const Query* const* queries, const float* columns, int64_t d, int64_t first,
                       float scale) {
  F16 lower[Q][V], upper[Q][V];  // halves of sum8's tree
  each<4>([&](auto pair) CLOVER_INLINED {
    F16 sum[2][Q][V] = {};
    for (int64_t i = 2 * pair; i < d; i += 8) {
      each<2>([&](auto odd) CLOVER_INLINED {
        F16 key[V];
        each<V>([&](auto v)
                    CLOVER_INLINED { key[v] = load_line<F16>(columns + (i + odd) * block_size + 16 * v); });
        each<Q>([&](auto a) CLOVER_INLINED {
          const F16 q = repeat<F16>(queries[a]->q[i + odd]);
          each<V>([&](auto v) CLOVER_INLINED { sum[odd][a][v] = madd(q, key[v], sum[odd][a][v]); });
        });
      });
    }
    each<Q>([&](auto a) CLOVER_INLINED {
      each<V>([&](auto v) CLOVER_INLINED {
        const F16 both = sum[0][a][v] + sum[1][a][v];
        if constexpr (pair == 0) lower[a][v] = both;
        if constexpr (pair == 1) lower[a][v] += both;
        if constexpr (pair == 2) upper[a][v] = both;
        if constexpr (pair == 3)
          store_line(queries[a]->score + first + 16 * v, (lower[a][v] + (upper[a][v] + both)) * scale);
      });
    });
  });
}

/// Scores of all queries, `count` for each, while the next block is prefetched.
template <class Ahead>
void score_columns(const Query* const* queries, const int64_t* count, int64_t total, const float* columns,
                   int64_t d, float scale, const Ahead& ahead) {
  for_query_heads<3>(total, [&](auto beside, int64_t begin) CLOVER_INLINED {
    const int64_t end = begin + beside;
    ahead.ask_for_keys(begin * block_size / total, end * block_size / total);
    int64_t most = 0, first = 0;
    for (int64_t a = begin; a < end; ++a) most = count[a] > most ? count[a] : most;
    for (; first + 48 < most; first += 64)
      score_column_tile<beside, 4>(queries + begin, columns + first, d, first, scale);
    for (; first + 16 < most; first += 32)
      score_column_tile<beside, 2>(queries + begin, columns + first, d, first, scale);
    for (; first < most; first += 16)
      score_column_tile<beside, 1>(queries + begin, columns + first, d, first, scale);
  });
}

}  // namespace
}  // namespace clover::kernels::cpu
