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

/// The same in fp32, for many uses.
struct BlockRows {
  const float* block;
  int64_t d;
  CLOVER_INLINE const float* operator()(int64_t j) const { return block + j * d; }
};

template <class T>
BlockRows load_block(const CacheRows<T>& rows, int64_t count, int64_t d, float* block) {
  for (int64_t j = 0; j < count; ++j) {
    for (int64_t i = 0; i < d; i += 8) store8(block + j * d + i, load8(rows(j) + i));
  }
  return {block, d};
}

/// The lane sums (sum8's order) of four vectors.
CLOVER_INLINE void sum8_of_four(const F8* x, float* out) {
#if defined(__AVX2__)
  const __m256 low = _mm256_hadd_ps((__m256)x[0], (__m256)x[1]),
               high = _mm256_hadd_ps((__m256)x[2], (__m256)x[3]);
  const __m256 halves = _mm256_hadd_ps(low, high);
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
#else
  for (int j = 0; j < 4; ++j) out[j] = sum8(x[j]);
#endif
}

template <int Q, int J, class Rows>
CLOVER_INLINE void score_tile(const Query* const* queries, const Rows& keys, int64_t d, int64_t j,
                              float scale) {
  F8 sum[Q][J] = {};
  for (int64_t i = 0; i < d; i += 8) {
    F8 q[Q];
    each<Q>([&](auto a) CLOVER_INLINED { q[a] = load8(queries[a]->q + i); });
    each<J>([&](auto b) CLOVER_INLINED {
      const F8 key = load8(keys(j + b) + i);
      each<Q>([&](auto a) CLOVER_INLINED { sum[a][b] = madd(q[a], key, sum[a][b]); });
    });
  }
  each<Q>([&](auto a) CLOVER_INLINED {
    float* to = queries[a]->score + j;
    if constexpr (J == 4) {
      sum8_of_four(sum[a], to);
    } else {
      for (int b = 0; b < J; ++b) to[b] = sum8(sum[a][b]);
    }
    for (int b = 0; b < J; ++b) to[b] *= scale;
  });
}

/// The next block, asked for while the present one is worked on: pages lie apart, and were not read since the
/// last step.
template <class T, CacheLevel level>
struct BlockAhead {
  CacheRows<T> keys, values;
  int64_t count, d;
  BlockAhead none() const { return {keys, values, 0, d}; }
  CLOVER_INLINE void ask_for_rows(int64_t begin, int64_t end) const {
    for (int64_t j = begin; j < end && j < count; ++j) {
      keys.template ask_for_row<level>(j, d);
      values.template ask_for_row<level>(j, d);
    }
  }
};

template <int Q, class Rows, class Ahead>
void score(const Query* const* queries, const Rows& keys, int64_t d, int64_t count, float scale,
           const Ahead& ahead) {
  int64_t j = 0;
  for (; j + 4 <= count; j += 4) {
    ahead.ask_for_rows(j, j + 4);
    score_tile<Q, 4>(queries, keys, d, j, scale);
  }
  for (; j < count; ++j) score_tile<Q, 1>(queries, keys, d, j, scale);
}

/// Turns a block's scores into weights and rescales what came before.
void merge_block(Query& query, int64_t count, int64_t d) {
  for (int64_t j = count; j % 8 != 0; ++j) query.score[j] = -__builtin_inff();
  F8 best = splat(query.largest);
  for (int64_t j = 0; j < count; j += 8) best = larger(load8(query.score + j), best);
  const float largest = max8(best);
  F8 mass{};
  for (int64_t j = 0; j < count; j += 8) {
    const F8 weight = exp_lanes(load8(query.score + j) - largest);
    store8(query.score + j, weight);
    mass += weight;
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

template <int Q, int D, class Rows>
CLOVER_INLINE void weigh_tile(Query* const* queries, const Rows& values, int64_t i, int64_t begin,
                              int64_t end) {
  F8 sum[Q][D];
  each<Q>([&](auto a) CLOVER_INLINED {
    each<D>([&](auto b) CLOVER_INLINED { sum[a][b] = load8(queries[a]->sum + i + 8 * b); });
  });
  for (int64_t j = begin; j < end; ++j) {
    F8 weight[Q];
    each<Q>([&](auto a) CLOVER_INLINED { weight[a] = splat(queries[a]->score[j]); });
    each<D>([&](auto b) CLOVER_INLINED {
      const F8 value = load8(values(j) + i + 8 * b);
      each<Q>([&](auto a) CLOVER_INLINED { sum[a][b] = madd(weight[a], value, sum[a][b]); });
    });
  }
  each<Q>([&](auto a) CLOVER_INLINED {
    each<D>([&](auto b) CLOVER_INLINED { store8(queries[a]->sum + i + 8 * b, sum[a][b]); });
  });
}

template <int Q, class Rows>
void weigh(Query* const* queries, const Rows& values, int64_t d, int64_t begin, int64_t end) {
  if (begin >= end) return;
  int64_t i = 0;
  for (; i + 32 <= d; i += 32) weigh_tile<Q, 4>(queries, values, i, begin, end);
  for (; i < d; i += 8) weigh_tile<Q, 1>(queries, values, i, begin, end);
}

/// Query heads from the first on that can go three by three: their counts of keys are the same.
int64_t in_threes(const int64_t* count, int64_t total) {
  int64_t i = 0;
  while (i + 3 <= total && count[i] == count[i + 1] && count[i] == count[i + 2]) i += 3;
  return i;
}

template <class Rows, class Ahead>
void score_all(Query* const* queries, const int64_t* count, int64_t total, const Rows& keys, int64_t d,
               float scale, const Ahead& ahead) {
  const int64_t threes = in_threes(count, total);
  const Ahead nothing = ahead.none();
  // The next block is asked for once, not by each of them.
  const auto rows_ahead = [&](int64_t first) -> const Ahead& { return first == 0 ? ahead : nothing; };
  int64_t i = 0;
  for (; i < threes; i += 3) score<3>(queries + i, keys, d, count[i], scale, rows_ahead(i));
  for (; i + 2 <= total; i += 2)
    score<2>(queries + i, keys, d, count[i] > count[i + 1] ? count[i] : count[i + 1], scale, rows_ahead(i));
  if (i < total) score<1>(queries + i, keys, d, count[i], scale, rows_ahead(i));
}

template <class Rows>
void weigh_all(Query* const* queries, const int64_t* count, int64_t total, const Rows& values, int64_t d) {
  const int64_t threes = in_threes(count, total);
  int64_t i = 0;
  for (; i < threes; i += 3) weigh<3>(queries + i, values, d, 0, count[i]);
  for (; i + 2 <= total; i += 2) {
    const int64_t both = count[i] < count[i + 1] ? count[i] : count[i + 1];
    weigh<2>(queries + i, values, d, 0, both);
    weigh<1>(queries + i, values, d, both, count[i]);
    weigh<1>(queries + i + 1, values, d, both, count[i + 1]);
  }
  if (i < total) weigh<1>(queries + i, values, d, 0, count[i]);
}

/// One block of keys against all query heads of the `members` rows, whose counts of keys in it may differ.
template <class T, class Ahead>
void attend_block(const Group& group, const int64_t* offsets, const int* members, const int64_t* counts,
                  int64_t rows, const Ahead& ahead) {
  const AttentionCall& call = group.call;
  const int64_t d = call.head_size;
  Query* queries[attention_group_queries];
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
    score_all(queries, count, total, keys, d, call.scale, ahead);
  } else {
    score_all(queries, count, total, load_block(keys, longest, d, group.block), d, call.scale, ahead);
  }
  for (int64_t i = 0; i < total; ++i) merge_block(*queries[i], count[i], d);
  if (once) {
    weigh_all(queries, count, total, values, d);
  } else {
    weigh_all(queries, count, total, load_block(values, longest, d, group.block), d);
  }
}

/// Blocks of keys by vector arithmetic; a policy of attend_group.
template <class T>
struct VectorBlocks {
  using Cached = T;
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
