#pragma once

#include "kernels/attention/attention_call.h"
#include "kernels/op/host_device.h"

// The loops of tree_attention on a CPU, compiled once for each instruction family.
namespace clover::kernels::cpu {

/// Partial results, for threads that share the keys of few rows.
struct AttentionSplits {
  float* partials;  // [rows * query_heads, count, head_size + 2], the last two being the largest score and
                    // the mass; null where one thread takes all keys of a row
  int64_t count;
};

/// How many partial results a path of `length` positions has.
constexpr int64_t split_keys = attention_split;
CLOVER_HOST_DEVICE int64_t attention_splits(int64_t length) {
  return length <= split_keys ? 1 : (length + split_keys - 1) / split_keys;
}

/// What one thread computes at a time: rows [first_row, first_row + rows) of one sequence, the query heads of
/// one kv head, and of their keys all or one split.
struct AttentionItem {
  int64_t first_row, rows, kv_head, split;
};

/// Floats of scratch memory for AttentionLoops::group, which then has attention_tile_scratch behind them.
constexpr int64_t attention_keys = attention_block;
constexpr int64_t attention_group_queries = most_queries_a_key;
CLOVER_HOST_DEVICE int64_t attention_scratch(int64_t head_size) {
  return attention_keys * head_size + attention_group_queries * (2 * head_size + attention_keys);
}
/// What the family with tile registers needs more: TileRoom.
CLOVER_HOST_DEVICE int64_t attention_tile_scratch(int64_t head_size) {
  return (3 * attention_group_queries + 2 * attention_keys) * head_size / 2 + 3 * 16 * attention_keys / 2 +
         16;
}

struct AttentionLoops {
  static constexpr bool own_amx_loops = true;  // attention_amx.cc

  /// All keys of an item, or those of its split, whose partial results `merge` then adds up.  Meanwhile the
  /// first keys of `next` (nullptr: none) are prefetched.
  void (*group)(const AttentionCall&, const AttentionItem&, const AttentionItem* next, const AttentionSplits&,
                float* scratch);
  /// Query heads [begin, end) of all rows' from their partial results.
  void (*merge)(const AttentionCall&, const AttentionSplits&, int64_t begin, int64_t end, float* scratch);
};

}  // namespace clover::kernels::cpu
