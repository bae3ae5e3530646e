#pragma once

#include "kernels/attention/attention_block.h"

// Attention of a few rows of one sequence to the keys of one kv head (an AttentionItem): split by split
// (split_keys, 256 positions of a path), and in each split block by block (block_keys, 64 positions).
namespace clover::kernels::cpu {
namespace {

Span span_of(const AttentionCall& call, int64_t row) {
  const int32_t *path = call.path + call.path_begin[row], *end = call.path + call.path_begin[row + 1];
  Span span{call.contiguous[row], call.contiguous[row] + (end - path), path};
  // Slots of the path that continue the contiguous part are counted as a part of it, so that more rows share
  // their blocks.
  while (span.tail_slots < end && *span.tail_slots == span.contiguous) {
    ++span.contiguous;
    ++span.tail_slots;
  }
  return span;
}

/// Which rows of a group have keys in the block that begins at position `start`, and which of them have the
/// same keys there.
struct BlockShare {
  int64_t row_counts[attention_group_queries];  // keys that each row has in the block; 0 or less: none
  int shared[attention_group_queries];          // rows whose keys are all in their contiguous part
  int64_t shared_rows = 0;                      // length of `shared`
  int widest = 0;                               // the row in `shared` with the most keys

  BlockShare(const Span* spans, int64_t rows, int64_t start) {
    for (int r = 0; r < rows; ++r) {
      row_counts[r] = spans[r].length - start < block_keys ? spans[r].length - start : block_keys;
      if (row_counts[r] <= 0 || spans[r].contiguous - start < row_counts[r]) continue;
      if (shared_rows == 0 || row_counts[r] > row_counts[widest]) widest = r;
      shared[shared_rows++] = r;
    }
  }
  /// Whether row r needs a block of its own, because some keys are not in its contiguous part.
  bool needs_own_block(const Span* spans, int r, int64_t start) const {
    return row_counts[r] > 0 && spans[r].contiguous - start < row_counts[r];
  }
};

/// Where the keys of an item's rows are.
struct ItemKeys {
  Span spans[attention_group_queries];
  int64_t rows, longest = 0;  // longest: the most positions of a row

  ItemKeys(const AttentionCall& call, const AttentionItem& item) : rows(item.rows) {
    for (int64_t r = 0; r < rows; ++r) {
      spans[r] = span_of(call, item.first_row + r);
      if (spans[r].length > longest) longest = spans[r].length;
    }
  }
};

/// The block that begins at `start` and is shared by rows of the item, to be prefetched; an empty block if no
/// row shares it. Its cache offsets are written to `offsets` [block_keys].
template <class NextBlock>
NextBlock block_at(const Group& group, const ItemKeys& keys, int64_t start, int64_t* offsets) {
  const BlockShare share(keys.spans, keys.rows, start);
  const int64_t count = share.shared_rows > 0 ? share.row_counts[share.widest] : 0;
  if (count > 0) find_block(group, keys.spans[share.widest], start, count, offsets);
  return NextBlock::of(group.call, offsets, count);
}

/// Attention to the keys of the split that begins at position `begin`, for every row that has keys there.
/// block_after_split(offsets) returns the block that is computed after the split, for prefetching.
template <class Blocks, class Following>
void attend_split(const Group& group, Blocks& blocks, const ItemKeys& keys, int64_t begin,
                  const Following& block_after_split) {
  using NextBlock = typename Blocks::NextBlock;
  const int64_t end = begin + split_keys < keys.longest ? begin + split_keys : keys.longest;
  int64_t shared_offsets[2][block_keys];  // of the present shared block, and of the next one, in turn
  block_at<NextBlock>(group, keys, begin, shared_offsets[0]).prefetch_rows(0, block_keys);
  blocks.prepare(group);
  int present = 0;
  for (int64_t start = begin; start < end; start += block_keys, present ^= 1) {
    const BlockShare share(keys.spans, keys.rows, start);
    for (int r = 0; r < keys.rows; ++r) {
      if (!share.needs_own_block(keys.spans, r, start)) continue;
      int64_t offsets[block_keys];
      find_block(group, keys.spans[r], start, share.row_counts[r], offsets);
      blocks.attend(group, offsets, &r, share.row_counts, 1, NextBlock::of(group.call, offsets, 0));
    }
    int64_t* next = shared_offsets[present ^ 1];
    const NextBlock next_block = start + block_keys < end
                                     ? block_at<NextBlock>(group, keys, start + block_keys, next)
                                     : block_after_split(next);
    if (share.shared_rows > 0)
      blocks.attend(group, shared_offsets[present], share.shared, share.row_counts, share.shared_rows,
                    next_block);
  }
}

/// Stores the result of query head `index`, which is row * query_heads + head.
template <class T>
void store_as(const AttentionCall& call, int64_t index, const Softmax& softmax) {
  T* to = static_cast<T*>(call.out) + index * call.head_size;
  const float exp_sum = softmax.exp_sum == 0 ? 1.0f : softmax.exp_sum;  // an empty path leaves zeros
  for (int64_t i = 0; i < call.head_size; i += 8) store8(to + i, load8(softmax.sum + i) / exp_sum);
}

void store_result(const AttentionCall& call, int64_t index, const Softmax& softmax) {
  switch (call.result) {
    case Element::fp32:
      return store_as<float>(call, index, softmax);
    case Element::bf16:
      return store_as<Bf16>(call, index, softmax);
    case Element::fp16:
      return store_as<Fp16>(call, index, softmax);
  }
}

/// Partial result number `split` of query head `index`.
Softmax partial_at(const AttentionCall& call, int64_t index, int64_t split, const AttentionSplits& splits) {
  float* at = splits.partials + (index * splits.count + split) * (call.head_size + 2);
  return {at, at[call.head_size], at[call.head_size + 1]};
}

void keep_partial(const AttentionCall& call, int64_t index, int64_t split, const AttentionSplits& splits,
                  const Softmax& softmax) {
  float* at = splits.partials + (index * splits.count + split) * (call.head_size + 2);
  std::memcpy(at, softmax.sum, call.head_size * sizeof(float));
  at[call.head_size] = softmax.largest;
  at[call.head_size + 1] = softmax.exp_sum;
}

Group group_of(const AttentionCall& call, const AttentionItem& item, Query* queries, float* block) {
  return {call,         call.page_table + call.sequence[item.first_row] * call.pages_per_sequence,
          item.kv_head, call.query_heads / call.kv_heads,
          queries,      block};
}

/// AttentionLoops::attend; `Blocks` (VectorBlocks or TileBlocks) is how a block of keys is computed.
template <class Blocks>
void attend_group(const AttentionCall& call, const AttentionItem& item, const AttentionItem* next_item,
                  const AttentionSplits& splits, float* scratch) {
  using NextBlock = typename Blocks::NextBlock;
  const int64_t d = call.head_size, heads = call.query_heads / call.kv_heads, count = item.rows * heads;
  const bool to_partials = splits.partials != nullptr;
  Query queries[attention_group_queries];
  const Group group = group_of(call, item, queries, scratch);
  float* memory = scratch + block_keys * d;  // of query i
  const auto index_of = [&](int64_t query) {
    return (item.first_row + query / heads) * call.query_heads + item.kv_head * heads + query % heads;
  };
  for (int64_t i = 0; i < count; ++i, memory += 2 * d + block_keys) {
    queries[i].q = call.q + index_of(i) * d;
    queries[i].score = memory;
    queries[i].sum = memory + block_keys;
    queries[i].before.sum = memory + block_keys + d;
    queries[i].before.clear(d);
  }
  Blocks blocks(count, d, scratch + attention_scratch(d));
  const ItemKeys keys(call, item);
  const int64_t split_count = attention_splits(keys.longest);
  const int64_t end = to_partials && item.split < split_count ? item.split + 1 : split_count;
  for (int64_t s = to_partials ? item.split : 0; s < end; ++s) {
    for (int64_t i = 0; i < count; ++i) queries[i].clear(d);
    attend_split(group, blocks, keys, s * split_keys, [&](int64_t* offsets) {
      if (s + 1 < end) return block_at<NextBlock>(group, keys, (s + 1) * split_keys, offsets);
      if (next_item == nullptr) return NextBlock::of(call, offsets, 0);
      return block_at<NextBlock>(group_of(call, *next_item, nullptr, nullptr), ItemKeys(call, *next_item),
                                 to_partials ? next_item->split * split_keys : 0, offsets);
    });
    for (int64_t i = 0; i < count; ++i) {
      if (to_partials)
        keep_partial(call, index_of(i), s, splits, queries[i]);
      else
        merge_splits(queries[i].before, queries[i], d);
    }
  }
  if (to_partials) return;
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

/// AttentionLoops::merge.
[[maybe_unused]] void attention_merge(const AttentionCall& call, const AttentionSplits& splits, int64_t begin,
                                      int64_t end, float* scratch) {
  for (int64_t index = begin; index < end; ++index) {
    Softmax result{scratch, 0, 0};
    result.clear(call.head_size);
    const int64_t splits_of_row = attention_splits(span_of(call, index / call.query_heads).length);
    for (int64_t s = 0; s < splits_of_row; ++s)
      merge_splits(result, partial_at(call, index, s, splits), call.head_size);
    store_result(call, index, result);
  }
}

}  // namespace
}  // namespace clover::kernels::cpu
