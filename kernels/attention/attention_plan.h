#pragma once

#include "kernels/attention/attention_call.h"
#include "kernels/gpu/numbers.h"

// Where tree_attention's keys are, and which thread block of a GPU works on which of them: arithmetic that
// kernels and launches share.
//   block  block_keys (64) successive positions, aligned to position 0
//   tile   the queries that one thread block takes at once: some query heads of one kv head, of successive
//          rows of a sequence
//   item   work for one thread block: a run of blocks of keys for one tile
//   part   the blocks of keys that are merged into one partial result
// A plan lists the items of a call; attention_plan_cuda.cu makes it and chooses how long items are.
namespace clover::kernels::cuda {

constexpr int block_keys = attention_block;
constexpr int split_keys = attention_split;
constexpr int split_blocks = split_keys / block_keys;
constexpr int tensor_queries = 16;  // queries that one mma.sync multiplies
constexpr int max_tile_queries = 2 * tensor_queries;
// Wide tiles are those of sm_90's kernel, which uses wgmma: the queries of one warpgroup, and the blocks of
// keys that are merged into a part.
constexpr int wide_group_queries = 64, wide_part_blocks = 16;
constexpr int blocks_per_multiprocessor = 2;  // thread blocks that run at once
constexpr int max_gpu_head_size = 256;        // larger ones do not fit in shared memory
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

/// Number of the row's blocks with positions beyond its contiguous part. Such a block of keys is private: the
/// row shares it with no other row.
CLOVER_HOST_DEVICE int private_blocks(const Span& span) {
  return span.contiguous >= span.length ? 0 : blocks_of(span.length) - span.contiguous / block_keys;
}

/// What the `queries` queries of a tile are: some query heads of one kv head, by successive rows of
/// a sequence.
struct TileShape {
  int heads;           // query heads of one kv head
  int heads_per_tile;  // how many of them are in one tile
  int rows;            // rows in one tile

  CLOVER_HOST_DEVICE TileShape(const AttentionCall& call, int queries)
      : heads(static_cast<int>(call.query_heads / call.kv_heads)),
        heads_per_tile(heads < queries ? heads : queries),
        rows(queries / heads_per_tile) {}
  /// Tiles that the query heads of one kv head are cut into.
  CLOVER_HOST_DEVICE int head_parts() const { return (heads + heads_per_tile - 1) / heads_per_tile; }
};

/// Work for one thread block: some blocks of keys for one tile. A tile has `chunks` items that each take a
/// run of blocks of keys, then `private_items` that share out the private blocks of its rows; if
/// private_items is 0, the chunks take these too.
struct alignas(16) AttentionItem {
  int32_t first_row, rows;        // of the tile
  int32_t chunk;                  // number of this item among those of the tile
  int32_t chunks, private_items;  // items of the tile
  int32_t tile;                   // its number
  int32_t shared_length;          // leading positions that lie in the contiguous part of all rows of the tile
  int32_t blocks;                 // of keys, of the longest row of the tile
};

/// The most blocks of keys in an item, unless it takes the whole path.
constexpr int max_item_blocks = 16;
/// The number of blocks of an item that takes the whole path, however long.
constexpr int whole_path_blocks = 1 << 24;
/// Blocks of keys in a part: `split`, or one if items have fewer blocks than that.
CLOVER_HOST_DEVICE int part_blocks(int item_blocks, int split) {
  return item_blocks < split ? 1 : split;
}
/// The most AttentionItem::private_items.
constexpr int max_private_items = 7;

/// Sizes of a plan and of its workspace, which depend on the shape of the call alone.
struct PlanShape {
  int groups;                  // warpgroups of a wide tile; 0: the kernel without wgmma (attention_cuda.cu)
  int queries;                 // of a tile
  int split;                   // blocks of keys that are merged into a part
  int64_t rows;                // of the call
  int64_t heads;               // thread blocks for one item: kv heads times TileShape::head_parts()
  int64_t items;               // capacity
  bool single_block_partials;  // whether the workspace can hold a partial result for each block of keys
  int64_t parts;               // capacity: partial results of a query
  int64_t head_size, query_heads;

  /// `warpgroups`: whether the GPU has wgmma (sm_90).
  PlanShape(const AttentionCall& call, int64_t shared_bytes, bool warpgroups);
  /// Thread blocks that a multiprocessor runs at once.
  int concurrent_blocks() const { return groups > 1 ? 1 : blocks_per_multiprocessor; }

  /// Offsets of AttentionPlan's arrays in the plan, in int32.
  static constexpr int64_t header = 8;
  int64_t spans_at() const { return header; }
  int64_t items_at() const { return spans_at() + 4 * rows; }
  int64_t tiles_at() const { return items_at() + 8 * items; }
  int64_t arrived_at() const { return tiles_at() + 8 * rows; }
  int64_t words() const { return arrived_at() + rows * heads; }
  /// Floats of the workspace (Partials): weighted values of all partial results, then the largest score and
  /// the mass of each.
  int64_t workspace() const { return rows * query_heads * parts * (head_size + 2); }
};

/// The arrays of a plan on the device.
struct AttentionPlan {
  int32_t* header;       // [2] number of items, and blocks of keys of each item
  Span* spans;           // [rows]
  AttentionItem* items;  // [items]
  AttentionItem* tiles;  // [tiles] items whose chunk and chunks are 0
  unsigned* arrived;     // [tiles, heads] zeros: counts of items that are done

  AttentionPlan(const PlanShape& shape, int32_t* words)
      : header(words),
        spans(reinterpret_cast<Span*>(words + shape.spans_at())),
        items(reinterpret_cast<AttentionItem*>(words + shape.items_at())),
        tiles(reinterpret_cast<AttentionItem*>(words + shape.tiles_at())),
        arrived(reinterpret_cast<unsigned*>(words + shape.arrived_at())) {}
};

/// Whether a kv head of an average sequence has more than `queries` queries. A captured pass has one more
/// sequence, which holds padding rows.
inline bool more_queries_than(const AttentionCall& call, int64_t queries) {
  const int64_t sequences = call.sequences > 1 ? call.sequences - 1 : 1;
  return call.rows * (call.query_heads / call.kv_heads) > queries * sequences;
}

/// How many warpgroups a wide tile has; 0: the kernel without wgmma computes the call.
inline int wide_groups(const AttentionCall& call, bool warpgroups) {
  const bool has_kernel = call.cache != Element::fp32 && (call.head_size == 64 || call.head_size == 128);
  if (!warpgroups || !has_kernel) return 0;
  return more_queries_than(call, wide_group_queries) ? 2 : 1;
}

/// Queries of a tile without wgmma: twice as many where sequences have enough queries and a kernel is
/// compiled for the head size.
inline int queries_per_tile(const AttentionCall& call, int64_t shared_bytes) {
  constexpr int64_t bytes_for_two = 115 << 10;
  const bool has_kernel = call.cache == Element::bf16 && (call.head_size == 64 || call.head_size == 128);
  const bool enough_queries = more_queries_than(call, tensor_queries);
  return has_kernel && enough_queries && shared_bytes >= bytes_for_two ? max_tile_queries : tensor_queries;
}

inline PlanShape::PlanShape(const AttentionCall& call, int64_t shared_bytes, bool warpgroups)
    : groups(wide_groups(call, warpgroups)),
      queries(groups > 0 ? wide_group_queries * groups : queries_per_tile(call, shared_bytes)),
      split(groups > 0 ? wide_part_blocks : split_blocks),
      rows(call.rows),
      heads(call.kv_heads * TileShape(call, queries).head_parts()),
      head_size(call.head_size),
      query_heads(call.query_heads) {
  constexpr int64_t min_item_capacity = 2048, max_single_block_floats = int64_t{8} << 20;
  const int64_t longest = call.pages_per_sequence * call.page_size;
  const int64_t longest_blocks = (longest + block_keys - 1) / block_keys,
                blocks = longest_blocks > 0 ? longest_blocks : 1;
  const int64_t needed_items = rows * ((blocks + max_item_blocks - 1) / max_item_blocks);
  items = needed_items > min_item_capacity ? needed_items : min_item_capacity;
  single_block_partials = rows * query_heads * blocks * (head_size + 2) <= max_single_block_floats;
  parts = single_block_partials ? blocks : (blocks + split - 1) / split;
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
