#pragma once

#include "kernels/attention/attention_softmax.h"
#include "kernels/rows/cache_row.h"

// A block of keys and values in the cache, and the queries that attend to it.
namespace clover::kernels::cpu {
namespace {

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

/// The offset in the cache of a slot of the sequence, for this kv head.
CLOVER_INLINE int64_t cache_offset(const Group& group, int64_t slot) {
  const PagePlace place = place_of(slot, group.call.page_size, group.pages);
  return cache_row(group.call, place, group.kv_head) * group.call.head_size;
}

/// Keys whose scores are computed side by side.
constexpr int64_t tile_of_keys = lane_count<Wide> / 2;

/// The offsets of positions start .. start + count - 1; the last one's is repeated to fill the last tile.
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

/// Keys or values of a block in place in the cache, converted to fp32 at every use.
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

/// Values converted to fp32 once, which many queries use.
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

/// The next block, which is prefetched while the present one is computed: pages are scattered and were last
/// read a step ago.
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

/// As many query heads side by side as the registers hold.
constexpr int most_beside = lane_count<Wide> == 16 ? 6 : 3;

/// Calls body(count, first) for all query heads, as many at a time as possible.
template <int Most = most_beside, class Body>
CLOVER_INLINE void for_query_heads(int64_t total, const Body& body, int64_t first = 0) {
  for (; first + Most <= total; first += Most) body(Constant<Most>{}, first);
  if constexpr (Most > 1) for_query_heads<(Most + 1) / 2>(total, body, first);
}

}  // namespace
}  // namespace clover::kernels::cpu
