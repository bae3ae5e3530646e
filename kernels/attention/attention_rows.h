#pragma once

#include "kernels/attention/attention_softmax.h"
#include "kernels/rows/cache_row.h"

// A block of keys and values (block_keys, 64 positions) in the paged cache, and the queries that attend to
// it. F32xN is the longest vector of floats (kernels/cpu/lanes.h); `d` is the head size.
namespace clover::kernels::cpu {
namespace {

/// Where the path of a row lies in the cache.
struct Span {
  int64_t contiguous;         // leading positions, which are in slots 0 .. contiguous-1
  int64_t length;             // positions of the path
  const int32_t* tail_slots;  // slots of positions contiguous .. length-1
};

/// The rows and query heads of an AttentionItem.
struct Group {
  const AttentionCall& call;
  const int32_t* pages;  // the sequence's row of page_table
  int64_t kv_head;
  int64_t heads;   // query heads of one kv head
  Query* queries;  // [rows * heads]
  float* block;    // [block_keys, d] keys, then values
};

/// Index in k (or v) of the first element of the key (or value) that the group's kv head has in slot `slot`
/// of the sequence.
CLOVER_INLINE int64_t cache_offset(const Group& group, int64_t slot) {
  const PagePlace place = place_of(slot, group.call.page_size, group.pages);
  return cache_row(group.call, place, group.kv_head) * group.call.head_size;
}

/// Keys whose scores are computed side by side.
constexpr int64_t keys_per_tile = lane_count<F32xN> / 2;

/// Writes the cache offsets of positions start .. start + count - 1 of a path to `offsets`; the last offset
/// is repeated up to a multiple of keys_per_tile.
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
  for (; i < count; ++i) offsets[i] = cache_offset(group, span.tail_slots[start + i - span.contiguous]);
  for (; i % keys_per_tile != 0; ++i) offsets[i] = offsets[i - 1];
}

/// Keys or values of a block, read in place from the cache; row j is at cache + offsets[j].
template <class T>
struct CacheRows {
  const T* cache;
  const int64_t* offsets;
  CLOVER_INLINE const T* operator()(int64_t j) const { return cache + offsets[j]; }
  template <CacheLevel level>
  CLOVER_INLINE void prefetch_row(int64_t j, int64_t d) const {
    for (int64_t i = 0; i < d; i += 64 / static_cast<int64_t>(sizeof(T)))
      prefetch_line<level>(cache + offsets[j] + i);
  }
};

/// Values of a block [count, d], converted to fp32 once because many queries use them.
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

/// The block of keys and values that is computed next. It is prefetched in pieces while the present one is
/// computed: row j of its keys, or values, at a time.
template <class T, CacheLevel level>
struct PrefetchedBlock {
  CacheRows<T> keys, values;
  int64_t count, d;

  static PrefetchedBlock of(const AttentionCall& call, const int64_t* offsets, int64_t count) {
    return {{static_cast<const T*>(call.k), offsets},
            {static_cast<const T*>(call.v), offsets},
            count,
            call.head_size};
  }
  /// The same without rows: nothing to prefetch.
  PrefetchedBlock none() const { return {keys, values, 0, d}; }
  CLOVER_INLINE void prefetch_keys(int64_t begin, int64_t end) const {
    for (int64_t j = begin; j < end && j < count; ++j) keys.template prefetch_row<level>(j, d);
  }
  CLOVER_INLINE void prefetch_values(int64_t begin, int64_t end) const {
    for (int64_t j = begin; j < end && j < count; ++j) values.template prefetch_row<level>(j, d);
  }
  CLOVER_INLINE void prefetch_rows(int64_t begin, int64_t end) const {
    prefetch_keys(begin, end);
    prefetch_values(begin, end);
  }
};

/// How many query heads are computed at once: as many as there are vector registers for their sums.
constexpr int max_heads_at_once = lane_count<F32xN> == 16 ? 6 : 3;

/// Calls body(Constant<count>, first) for query heads [first, first + count), until all `head_count` are
/// done; count is at most MaxCount.
template <int MaxCount = max_heads_at_once, class Body>
CLOVER_INLINE void for_query_heads(int64_t head_count, const Body& body, int64_t first = 0) {
  for (; first + MaxCount <= head_count; first += MaxCount) body(Constant<MaxCount>{}, first);
  if constexpr (MaxCount > 1) for_query_heads<(MaxCount + 1) / 2>(head_count, body, first);
}

}  // namespace
}  // namespace clover::kernels::cpu
