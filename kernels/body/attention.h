#pragma once

#include "kernels/body/attention_block.h"

// Attention of a few rows of one sequence to one kv head: splits of the keys, block by block of logical
// positions.
namespace clover::kernels::cpu {
namespace {

Span span_of(const AttentionCall& call, int64_t row) {
  const int32_t *path = call.path + call.path_begin[row], *end = call.path + call.path_begin[row + 1];
  Span span{call.contiguous[row], call.contiguous[row] + (end - path), path};
  // A path that goes on where the contiguous part stops is part of it: such rows share their blocks.
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
  /// Tree ancestors that lie elsewhere: a block of its own.
  bool alone(const Span* spans, int r, int64_t start) const {
    return counts[r] > 0 && spans[r].contiguous - start < counts[r];
  }
};

/// The keys of one split, for every row that has any there.
template <class Blocks>
void attend_split(const Group& group, Blocks& blocks, const Span* spans, int64_t rows, int64_t begin) {
  using T = typename Blocks::Cached;
  const T *k = static_cast<const T*>(group.call.k), *v = static_cast<const T*>(group.call.v);
  int64_t places[2][block_size];
  typename Blocks::Ahead ahead{{k, places[0]}, {v, places[0]}, 0, group.call.head_size};
  const auto find_shared = [&](int64_t start, int64_t* offsets) {
    const BlockShare share(spans, rows, start);
    const int64_t count = share.shared_rows > 0 ? share.counts[share.widest] : 0;
    if (count > 0) find_block(group, spans[share.widest], start, count, offsets);
    ahead = {{k, offsets}, {v, offsets}, count, group.call.head_size};
  };
  find_shared(begin, places[0]);
  ahead.ask_for_rows(0, block_size);
  blocks.prepare(group);
  int turn = 0;
  for (int64_t start = begin; start < begin + split_keys; start += block_size, turn ^= 1) {
    const BlockShare share(spans, rows, start);
    const bool last = start + block_size == begin + split_keys;
    ahead.count = 0;
    for (int r = 0; r < rows; ++r) {
      if (!share.alone(spans, r, start)) continue;
      int64_t offsets[block_size];
      find_block(group, spans[r], start, share.counts[r], offsets);
      blocks.attend(group, offsets, &r, share.counts, 1, ahead);
    }
    if (!last) find_shared(start + block_size, places[turn ^ 1]);
    if (share.shared_rows > 0)
      blocks.attend(group, places[turn], share.shared, share.counts, share.shared_rows, ahead);
  }
}

/// The result of query head `index` among all rows' (row * query_heads + head).
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

/// Where a partial result lies among `partials`: [R * Hq, splits, d + 2].
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

/// CpuBodies::attention_group, blocks of keys being worked through by `Blocks` (VectorBlocks, TileBlocks).
template <class Blocks>
void attend_group(const AttentionCall& call, int64_t first_row, int64_t rows, int64_t kv_head, int64_t split,
                  const AttentionSplits& splits, float* scratch) {
  const int64_t d = call.head_size, heads = call.query_heads / call.kv_heads;
  const bool apart = splits.partials != nullptr;
  Query queries[attention_group_queries];
  Group group{call,    call.page_table + call.sequence[first_row] * call.pages_per_sequence,
              kv_head, heads,
              queries, scratch};
  float* next = scratch + block_size * d;
  const auto index_of = [&](int64_t query) {
    return (first_row + query / heads) * call.query_heads + kv_head * heads + query % heads;
  };
  for (int64_t i = 0; i < rows * heads; ++i, next += 2 * d + block_size) {
    queries[i].q = call.q + index_of(i) * d;
    queries[i].score = next;
    queries[i].sum = next + block_size;
    queries[i].before.sum = next + block_size + d;
    queries[i].before.clear(d);
  }
  Blocks blocks(rows * heads, d, scratch + attention_scratch(d));
  Span spans[attention_group_queries];
  int64_t longest = 0;
  for (int64_t r = 0; r < rows; ++r) {
    spans[r] = span_of(call, first_row + r);
    if (spans[r].length > longest) longest = spans[r].length;
  }
  const int64_t needed = attention_splits(longest), end = apart ? split + 1 : needed;
  for (int64_t s = apart ? split : 0; s < end && s < needed; ++s) {
    for (int64_t i = 0; i < rows * heads; ++i) queries[i].clear(d);
    attend_split(group, blocks, spans, rows, s * split_keys);
    for (int64_t i = 0; i < rows * heads; ++i) {
      if (apart)
        keep_partial(call, index_of(i), s, splits, queries[i]);
      else
        merge_splits(queries[i].before, queries[i], d);
    }
  }
  if (apart) return;
  for (int64_t i = 0; i < rows * heads; ++i) store_result(call, index_of(i), queries[i].before);
}

void attention_group(const AttentionCall& call, int64_t first_row, int64_t rows, int64_t kv_head,
                     int64_t split, const AttentionSplits& splits, float* scratch) {
  switch (call.cache) {
    case Element::fp32:
      return attend_group<VectorBlocks<float>>(call, first_row, rows, kv_head, split, splits, scratch);
    case Element::bf16:
      return attend_group<VectorBlocks<Bf16>>(call, first_row, rows, kv_head, split, splits, scratch);
    case Element::fp16:
      return attend_group<VectorBlocks<Fp16>>(call, first_row, rows, kv_head, split, splits, scratch);
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
