#pragma once

#include "kernels/attention/attention_call.h"
#include "kernels/op/host_device.h"

// The loops of tree_attention on a CPU, compiled once for each instruction family.
namespace clover::kernels::cpu {

/// Partial results, one for each split (split_keys positions), where threads share the keys of few rows.
struct AttentionSplits {
  // [rows * query_heads, count, head_size + 2]: weighted values, then the largest score, then the exp_sum
  // (sum of weights exp(score - largest)). Null: one thread takes all keys of a row.
  float* partials;
  int64_t count;  // splits of the longest path; 1 if partials is null
};

constexpr int64_t split_keys = attention_split;
/// How many splits a path of `length` positions has.
CLOVER_HOST_DEVICE int64_t attention_splits(int64_t length) {
  return length <= split_keys ? 1 : (length + split_keys - 1) / split_keys;
}

/// What one thread computes at a time: rows [first_row, first_row + rows) of one sequence, for the query
/// heads of one kv head, with all of their keys or (if AttentionSplits::partials is given) with those of one
/// split.
struct AttentionItem {
  int64_t first_row, rows, kv_head, split;
};

constexpr int64_t block_keys = attention_block;  // positions in a block of keys
constexpr int64_t attention_group_queries =
    max_query_heads_per_kv_head;  // rows * query heads of an item, at most
/// Floats of scratch memory for AttentionLoops::attend, which needs attention_tile_scratch after these.
CLOVER_HOST_DEVICE int64_t attention_scratch(int64_t head_size) {
  return block_keys * head_size + attention_group_queries * (2 * head_size + block_keys);
}
/// Floats that the family with AMX tile registers needs in addition (TileBuffers in attention_tile_group.h).
CLOVER_HOST_DEVICE int64_t attention_tile_scratch(int64_t head_size) {
  return (3 * attention_group_queries + 2 * block_keys) * head_size / 2 + 3 * 16 * block_keys / 2 + 16;
}

struct AttentionLoops {
  static constexpr bool own_amx_loops = true;  // attention_amx.cc

  /// Computes an item: writes its rows' results, or the partial results of its split if partials are given.
  /// It ends with a prefetch of the first keys of the item `next` (nullptr: none).
  void (*attend)(const AttentionCall&, const AttentionItem&, const AttentionItem* next,
                 const AttentionSplits&, float* scratch);
  /// Writes the results of query heads [begin, end) of the rows * query_heads of the call from their partial
  /// results.
  void (*merge)(const AttentionCall&, const AttentionSplits&, int64_t begin, int64_t end, float* scratch);
};

}  // namespace clover::kernels::cpu
