#pragma once

#include "kernels/attention/attention_call.h"
#include "kernels/gpu/numbers.h"

// Where tree_attention's keys are, and which thread block of a GPU works on which of them: arithmetic that
// kernels and launches share.
//   block  block_keys (64) successive positions, aligned to position 0
//   query  one query head of one row
//   tile   successive rows of a sequence, and of their query heads one head group
//   head group   the query heads of one kv head, or as many of them as fit in a tile
//   item   a run of blocks of keys for the rows of one tile; it is done once for each head group, each time
//   by
//          one thread block
//   part   the blocks of keys that are merged into one partial result
// A plan lists the items of a call; attention_plan_cuda.cu makes it and chooses how long items are.  Results
// do not depend on that: partial results of single blocks are first merged, in order, into parts of
// max_part_blocks.
namespace clover::kernels::cuda {

constexpr int block_keys = attention_block;
constexpr int split_keys = attention_split;
constexpr int max_part_blocks = split_keys / block_keys;
constexpr int tensor_queries = 16;  // queries that one mma.sync multiplies
constexpr int max_tile_queries = 2 * tensor_queries;
// Wide tiles are those of sm_90's kernel, which uses wgmma.
constexpr int wide_group_queries = 64;               // queries of one warpgroup
constexpr int wide_max_part_blocks = 16;             // blocks of keys of a part
constexpr int thread_blocks_per_multiprocessor = 2;  // thread blocks that run at once
constexpr int max_gpu_head_size = 256;               // larger ones do not fit in shared memory
// Floats of partial results; a call that needs more takes its rows in several portions.
constexpr int64_t max_attention_workspace = int64_t{32} << 20;

/// The call restricted to `count` rows from `first` on.
inline AttentionCall rows_of(AttentionCall call, int64_t first, int64_t count) {
  const int64_t width = call.query_heads * call.head_size;
  call.q += first * width;
  call.out = static_cast<char*>(call.out) + first * width * bytes_of(call.result);
  call.sequence += first;
  call.contiguous += first;
  call.path_begin += first;
  call.rows = count;
  call.plan = nullptr;
  return call;
}

/// Where the path of a row lies in the cache.
struct alignas(16) Span {
  int32_t contiguous;  // leading positions, which are in slots 0 .. contiguous - 1
  int32_t length;      // positions of the path
  int32_t tail_begin;  // index in AttentionCall::path of the slots of positions contiguous .. length - 1
  int32_t unused;
};

/// The span of a row. Slots of the path that continue the contiguous part are counted as a part of it, so
/// that more rows of a sequence share their blocks of keys.
CLOVER_HOST_DEVICE Span span_of(const AttentionCall& call, int64_t row) {
  const int32_t begin = call.path_begin[row], end = call.path_begin[row + 1];
  Span span{call.contiguous[row], call.contiguous[row] + end - begin, begin, 0};
  while (span.tail_begin < end && call.path[span.tail_begin] == span.contiguous) {
    ++span.contiguous;
    ++span.tail_begin;
  }
  return span;
}

/// Number of keys that the row has in the block that begins at position `start`.
CLOVER_HOST_DEVICE int count_in_block(const Span& span, int start) {
  const int left = span.length - start;
  return left < block_keys ? left : block_keys;
}

/// Number of blocks of keys of a path of `length` positions.
CLOVER_HOST_DEVICE int blocks_of(int length) {
  return (length + block_keys - 1) / block_keys;
}

/// Number of the row's blocks with positions beyond its contiguous part. Such a block of keys is private: it
/// is loaded for this row alone, even if other rows have some of the same slots in their paths.
CLOVER_HOST_DEVICE int private_blocks(const Span& span) {
  return span.contiguous >= span.length ? 0 : blocks_of(span.length) - span.contiguous / block_keys;
}

/// How a tile of `queries` queries is filled: with heads_per_tile query heads of one kv head, of each of
/// `rows` successive rows of a sequence.
struct TileShape {
  int heads;           // query heads of one kv head
  int heads_per_tile;  // how many of them are in one tile
  int rows;            // rows in one tile

  CLOVER_HOST_DEVICE TileShape(const AttentionCall& call, int queries)
      : heads(static_cast<int>(call.query_heads / call.kv_heads)),
        heads_per_tile(heads < queries ? heads : queries),
        rows(queries / heads_per_tile) {}
  /// Head groups that the query heads of one kv head are cut into.
  CLOVER_HOST_DEVICE int groups_per_kv_head() const { return (heads + heads_per_tile - 1) / heads_per_tile; }
};

/// Some blocks of keys for the rows of one tile, for every head group. A tile has `chunks` items that each
/// take a run of blocks of keys, then `private_items` that share out the private blocks of its rows; if
/// private_items is 0, the chunks take these too.
struct alignas(16) AttentionItem {
  int32_t first_row, rows;  // of the tile
  // Number of this item in its tile: below `chunks` it takes the blocks from chunk * item_blocks on, where
  // item_blocks is AttentionPlan::header[1]; from `chunks` on it is private item chunk - chunks.
  int32_t chunk;
  int32_t chunks, private_items;  // items of the tile
  int32_t tile;                   // number of the tile in the call
  int32_t shared_length;          // leading positions that lie in the contiguous part of all rows of the tile
  int32_t blocks;                 // blocks of keys of the longest row of the tile
};

/// The most blocks of keys in an item, unless it takes the whole path.
constexpr int max_item_blocks = 16;
/// The number of blocks of an item that takes the whole path, however long.
constexpr int whole_path_blocks = 1 << 24;
/// Blocks of keys in a part: `most`, or one if items have fewer blocks than that.
CLOVER_HOST_DEVICE int part_blocks(int item_blocks, int most) {
  return item_blocks < most ? 1 : most;
}
/// The most AttentionItem::private_items.
constexpr int max_private_items = 7;

/// Sizes of a plan and of its workspace, which depend on the GPU and the shape of the call, not on the
/// contents of its tensors.
struct PlanShape {
  int groups;                  // warpgroups of a wide tile; 0: the kernel without wgmma (attention_cuda.cu)
  int queries;                 // of a tile
  int max_part_blocks;         // blocks of keys of a part, unless items are shorter (part_blocks)
  int64_t rows;                // of the call
  int64_t head_groups;         // how often an item is done: kv heads times groups_per_kv_head()
  int64_t items;               // capacity
  bool single_block_partials;  // whether the workspace can hold a partial result for each block of keys
  int64_t parts;               // capacity: partial results of a query
  int64_t head_size, query_heads;

  /// has_wgmma: whether the GPU is sm_90.  shared_bytes: the most shared memory of one of its thread blocks.
  PlanShape(const AttentionCall& call, int64_t shared_bytes, bool has_wgmma);
  /// Thread blocks that a multiprocessor runs at once.
  int concurrent_thread_blocks() const { return groups > 1 ? 1 : thread_blocks_per_multiprocessor; }

  /// Offsets of AttentionPlan's arrays in the plan, in int32.  There are at most as many tiles as rows.
  static constexpr int64_t header = 8;  // two are used; eight keep the arrays aligned
  static constexpr int64_t span_words = sizeof(Span) / 4, item_words = sizeof(AttentionItem) / 4;
  int64_t spans_at() const { return header; }
  int64_t items_at() const { return spans_at() + span_words * rows; }
  int64_t tiles_at() const { return items_at() + item_words * items; }
  int64_t arrived_at() const { return tiles_at() + item_words * rows; }
  int64_t words() const { return arrived_at() + rows * head_groups; }
  /// Floats of the workspace (Partials, attention_merge.cuh): of every partial result the weighted sum of
  /// values, then the largest score and the sum of exp(score - largest).
  int64_t workspace() const { return rows * query_heads * parts * (head_size + 2); }
};

/// The arrays of a plan on the device.
struct AttentionPlan {
  int32_t* header;       // [2] number of items, and blocks of keys of each item
  Span* spans;           // [rows]
  AttentionItem* items;  // [items]
  AttentionItem* tiles;  // [tiles] what all items of a tile share; chunk and chunks are not used
  unsigned* arrived;     // [tiles, head_groups] items that are done so far; 0 between calls

  AttentionPlan(const PlanShape& shape, int32_t* words)
      : header(words),
        spans(reinterpret_cast<Span*>(words + shape.spans_at())),
        items(reinterpret_cast<AttentionItem*>(words + shape.items_at())),
        tiles(reinterpret_cast<AttentionItem*>(words + shape.tiles_at())),
        arrived(reinterpret_cast<unsigned*>(words + shape.arrived_at())) {}
};

/// Whether a kv head of an average sequence has more than `queries` queries. One sequence is not counted: the
/// last one of a captured pass holds only padding rows.
inline bool more_queries_than(const AttentionCall& call, int64_t queries) {
  const int64_t sequences = call.sequences > 1 ? call.sequences - 1 : 1;
  return call.rows * (call.query_heads / call.kv_heads) > queries * sequences;
}

/// How many warpgroups a wide tile has; 0: the kernel without wgmma computes the call.
inline int wide_groups(const AttentionCall& call, bool has_wgmma) {
  const bool has_kernel = call.cache != Element::fp32 && (call.head_size == 64 || call.head_size == 128);
  if (!has_wgmma || !has_kernel) return 0;
  return more_queries_than(call, wide_group_queries) ? 2 : 1;
}

/// Queries of a tile without wgmma: twice as many where sequences have enough queries and a kernel is
/// compiled for the head size.
inline int queries_per_tile(const AttentionCall& call, int64_t shared_bytes) {
  constexpr int64_t bytes_of_large_tile = 115 << 10;  // Tile<2>::bytes (attention_tile.cuh) at head size 128
  const bool has_kernel = call.cache == Element::bf16 && (call.head_size == 64 || call.head_size == 128);
  const bool enough_queries = more_queries_than(call, tensor_queries);
  return has_kernel && enough_queries && shared_bytes >= bytes_of_large_tile ? max_tile_queries
                                                                             : tensor_queries;
}

inline PlanShape::PlanShape(const AttentionCall& call, int64_t shared_bytes, bool has_wgmma)
    : groups(wide_groups(call, has_wgmma)),
      queries(groups > 0 ? wide_group_queries * groups : queries_per_tile(call, shared_bytes)),
      max_part_blocks(groups > 0 ? wide_max_part_blocks : cuda::max_part_blocks),
      rows(call.rows),
      head_groups(call.kv_heads * TileShape(call, queries).groups_per_kv_head()),
      head_size(call.head_size),
      query_heads(call.query_heads) {
  constexpr int64_t min_item_capacity = 2048, max_single_block_floats = int64_t{8} << 20;
  const int64_t longest = call.pages_per_sequence * call.page_size;
  const int64_t longest_blocks = (longest + block_keys - 1) / block_keys,
                blocks = longest_blocks > 0 ? longest_blocks : 1;
  const int64_t needed_items = rows * ((blocks + max_item_blocks - 1) / max_item_blocks);
  items = needed_items > min_item_capacity ? needed_items : min_item_capacity;
  single_block_partials = rows * query_heads * blocks * (head_size + 2) <= max_single_block_floats;
  parts = single_block_partials ? blocks : (blocks + max_part_blocks - 1) / max_part_blocks;
}

/// Elements from one row of keys (or values) to the next in shared memory, for rows of `size` 16-bit
/// elements, a multiple of 16. The padding puts the 8 bytes of keys (16 bytes of values) that lanes read at
/// once into different banks.
CLOVER_HOST_DEVICE int key_stride(int size) {
  return size / 2 % 16 == 0 ? size + 16 : size;
}
CLOVER_HOST_DEVICE int value_stride(int size) {
  return size + 8;
}

}  // namespace clover::kernels::cuda
