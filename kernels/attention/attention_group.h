#pragma once

#include "kernels/attention/attention_block.h"

// Attention of a few rows of one sequence to one kv head: splits of the keys, block by block of logical
// positions.
namespace clover::kernels::cpu {
namespace {

Span span_of(const AttentionCall& call, int64_t row) {
  const int32_t *path = call.path + call.path_begin[row], *end = call.path + call.path_begin[row + 1];
  Span span{call.contiguous[row], call.contiguous[row] + (end - path), path};
  // If the path goes on in the slot behind the contiguous part, that belongs to the contiguous part too, so
  // that such rows share their blocks.
  while (span.rest < end && *span.rest == span.contiguous) {
    ++span.contiguous;
    ++span.rest;
  }
  return span;
}

/// Which rows of a group have keys in the block that begins at `start`, and how.
struct BlockShare {
  int64_t counts[attention_group_queries];
  int shared[attention_group_queries];  // rows whose keys there are contiguous: one block serves them all
  int64_t shared_rows = 0;
  int widest = 0;  // of them

  BlockShare(const Span* spans, int64_t rows, int64_t start) {
    for (int r = 0; r < rows; ++r) {
      counts[r] = spans[r].length - start < block_size ? spans[r].length - start : block_size;
      if (counts[r] <= 0 || spans[r].contiguous - start < counts[r]) continue;
      if (shared_rows == 0 || counts[r] > counts[widest]) widest = r;
      shared[shared_rows++] = r;
    }
  }
  /// Whether the row needs a block of its own, because tree ancestors lie elsewhere.
  bool alone(const Span* spans, int r, int64_t start) const {
    return counts[r] > 0 && spans[r].contiguous - start < counts[r];
  }
};

/// Where the rows of an item have their keys.
struct ItemKeys {
  Span spans[attention_group_queries];
  int64_t rows, longest = 0;

  ItemKeys(const AttentionCall& call, const AttentionItem& item) : rows(item.rows) {
    for (int64_t r = 0; r < rows; ++r) {
      spans[r] = span_of(call, item.first_row + r);
      if (spans[r].length > longest) longest = spans[r].length;
    }
  }
};

/// The block from `start` on that most rows share, to be prefetched; an empty one if no row has keys there.
template <class Ahead>
Ahead block_at(const Group& group, const ItemKeys& keys, int64_t start, int64_t* offsets) {
  const BlockShare share(keys.spans, keys.rows, start);
  const int64_t count = share.shared_rows > 0 ? share.counts[share.widest] : 0;
  if (count > 0) find_block(group, keys.spans[share.widest], start, count, offsets);
  return Ahead::of(group.call, offsets, count);
}

/// Attention to the keys of one split, for every row that has any there. `then(offsets)` returns the block to
/// prefetch behind them.
template <class Blocks, class Then>
void attend_split(const Group& group, Blocks& blocks, const ItemKeys& keys, int64_t begin, const Then& then) {
  using Ahead = typename Blocks::Ahead;
  const int64_t end = begin + split_keys < keys.longest ? begin + split_keys : keys.longest;
  int64_t places[2][block_size];
  block_at<Ahead>(group, keys, begin, places[0]).ask_for_rows(0, block_size);
  blocks.prepare(group);
  int turn = 0;
  for (int64_t start = begin; start < end; start += block_size, turn ^= 1) {
    const BlockShare share(keys.spans, keys.rows, start);
    for (int r = 0; r < keys.rows; ++r) {
      if (!share.alone(keys.spans, r, start)) continue;
      int64_t offsets[block_size];
      find_block(group, keys.spans[r], start, share.counts[r], offsets);
      blocks.attend(group, offsets, &r, share.counts, 1, Ahead::of(group.call, offsets, 0));
    }
    int64_t* next = places[turn ^ 1];
    const Ahead ahead =
        start + block_size < end ? block_at<Ahead>(group, keys, start + block_size, next) : then(next);
    if (share.shared_rows > 0)
      blocks.attend(group, places[turn], share.shared, share.counts, share.shared_rows, ahead);
  }
}

/// Stores the result of query head `index` among all rows' (row * query_heads + head).
template <class T>
void store_as(const AttentionCall& call, int64_t index, const Softmax& all) {
  T* to = static_cast<T*>(call.out) + index * call.head_size;
  const float mass = all.mass == 0 ? 1.0f : all.mass;  // an empty path leaves zeros
  for (int64_t i = 0; i < call.head_size; i += 8) store8(to + i, load8(all.sum + i) / mass);
}

void store_result(const AttentionCall& call, int64_t index, const Softmax& all) {
  switch (call.result) {
    case Element::fp32:
      return store_as<float>(call, index, all);
    case Element::bf16:
      return store_as<Bf16>(call, index, all);
    case Element::fp16:
      return store_as<Fp16>(call, index, all);
  }
}

/// The partial result of a query head among `partials` [R * Hq, splits, d + 2].
Softmax partial_at(const AttentionCall& call, int64_t index, int64_t split, const AttentionSplits& splits) {
  float* at = splits.partials + (index * splits.count + split) * (call.head_size + 2);
  return {at, at[call.head_size], at[call.head_size + 1]};
}

void keep_partial(const AttentionCall& call, int64_t index, int64_t split, const AttentionSplits& splits,
                  const Softmax& of_split) {
  float* at = splits.partials + (index * splits.count + split) * (call.head_size + 2);
  std::memcpy(at, of_split.sum, call.head_size * sizeof(float));
  at[call.head_size] = of_split.largest;
  at[call.head_size + 1] = of_split.mass;
}

Group group_of(const AttentionCall& call, const AttentionItem& item, Query* queries, float* block) {
  return {call,         call.page_table + call.sequence[item.first_row] * call.pages_per_sequence,
          item.kv_head, call.query_heads / call.kv_heads,
          queries,      block};
}

/// AttentionLoops::group; `Blocks` (VectorBlocks, TileBlocks) computes one block of keys.
template <class Blocks>
void attend_group(const AttentionCall& call, const AttentionItem& item, const AttentionItem* next_item,
                  const AttentionSplits& splits, float* scratch) {
  using Ahead = typename Blocks::Ahead;
  const int64_t d = call.head_size, heads = call.query_heads / call.kv_heads, count = item.rows * heads;
  const bool apart = splits.partials != nullptr;
  Query queries[attention_group_queries];
  const Group group = group_of(call, item, queries, scratch);
  float* next = scratch + block_size * d;
  const auto index_of = [&](int64_t query) {
    return (item.first_row + query / heads) * call.query_heads + item.kv_head * heads + query % heads;
  };
  for (int64_t i = 0; i < count; ++i, next += 2 * d + block_size) {
    queries[i].q = call.q + index_of(i) * d;
    queries[i].score = next;
    queries[i].sum = next + block_size;
    queries[i].before.sum = next + block_size + d;
    queries[i].before.clear(d);
  }
  Blocks blocks(count, d, scratch + attention_scratch(d));
  const ItemKeys keys(call, item);
  const int64_t needed = attention_splits(keys.longest);
  const int64_t end = apart && item.split < needed ? item.split + 1 : needed;
  for (int64_t s = apart ? item.split : 0; s < end; ++s) {
    for (int64_t i = 0; i < count; ++i) queries[i].clear(d);
    attend_split(group, blocks, keys, s * split_keys, [&](int64_t* offsets) {
      if (s + 1 < end) return block_at<Ahead>(group, keys, (s + 1) * split_keys, offsets);
      if (next_item == nullptr) return Ahead::of(call, offsets, 0);
      return block_at<Ahead>(group_of(call, *next_item, nullptr, nullptr), ItemKeys(call, *next_item),
                             apart ? next_item->split * split_keys : 0, offsets);
    });
    for (int64_t i = 0; i < count; ++i) {
      if (apart)
        keep_partial(call, index_of(i), s, splits, queries[i]);
      else
        merge_splits(queries[i].before, queries[i], d);
    }
  }
  if (apart) return;
  for (int64_t i = 0; i < count; ++i) store_result(call, index_of(i), queries[i].before);
}

void attention_group(const AttentionCall& call, const AttentionItem& item, const AttentionItem* next,
                     const AttentionSplits& splits, float* scratch) {
  switch (call.cache) {
    case Element::fp32:
      return attend_group<VectorBlocks<float>>(call, item, next, splits, scratch);
    case Element::bf16:
      return attend_group<VectorBlocks<Bf16>>(call, item, next, splits, scratch);
    case Element::fp16:
      return attend_group<VectorBlocks<Fp16>>(call, item, next, splits, scratch);
  }
}

/// Query heads [begin, end) of all rows' from their partial results.
[[maybe_unused]] void attention_merge(const AttentionCall& call, const AttentionSplits& splits, int64_t begin,
                                      int64_t end, float* scratch) {
  for (int64_t index = begin; index < end; ++index) {
    Softmax all{scratch, 0, 0};
    all.clear(call.head_size);
    const int64_t own = attention_splits(span_of(call, index / call.query_heads).length);
    for (int64_t s = 0; s < own; ++s) merge_splits(all, partial_at(call, index, s, splits), call.head_size);
    store_result(call, index, all);
  }
}

}  // namespace
}  // namespace clover::kernels::cpu
