#pragma once

#include "kernels/attention/attention_call.h"
#include "kernels/gpu/numbers.h"

// Where tree_attention's keys lie and which block of a GPU works on which of them: arithmetic that kernels,
// launches and tests share.  How many blocks of keys one block of the GPU takes, and so into how many parts a
// path is split, attention_plan_cuda.cu chooses.
namespace clover::kernels::cuda {

constexpr int block_keys = attention_block;
constexpr int split_keys = attention_split;
constexpr int split_blocks = split_keys / block_keys;
constexpr int tensor_queries = 16;  // that a tensor core takes at once
constexpr int most_tile_queries = 2 * tensor_queries;
// Wide tiles are those of sm_90's products of four warps (wgmma): the queries that one warpgroup takes, and
// the blocks of keys that fold into a part.
constexpr int wide_group_queries = 64, wide_part_blocks = 16;
constexpr int blocks_a_multiprocessor = 2;                       // of threads, that attend at once
constexpr int largest_head = 256;                                // whose keys and values fit in shared memory
constexpr int64_t most_attention_workspace = int64_t{32} << 20;  // floats; more rows go one after the other

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

/// The leading positions of a row's path that lie in slots 0 .. contiguous - 1, its length, and where in
/// AttentionCall::path the slots of the rest begin.
struct alignas(16) Span {
  int32_t contiguous, length, rest, unused;
};

/// The span of a row. If its path goes on in the slot behind the contiguous part, that belongs to the
/// contiguous part too, so that rows of one sequence share their blocks.
CLOVER_HOST_DEVICE Span span_of(const AttentionCall& call, int64_t row) {
  const int32_t begin = call.path_begin[row], end = call.path_begin[row + 1];
  Span span{call.contiguous[row], call.contiguous[row] + end - begin, begin, 0};
  while (span.rest < end && call.path[span.rest] == span.contiguous) {
    ++span.contiguous;
    ++span.rest;
  }
  return span;
}

/// Number of keys that the row has in the block that begins at position `start`.
CLOVER_HOST_DEVICE int count_in_block(const Span& span, int start) {
  const int left = span.length - start;
  return left < block_keys ? left : block_keys;
}

CLOVER_HOST_DEVICE int blocks_of(int length) {
  return (length + block_keys - 1) / block_keys;
}

/// Number of blocks of keys that the row shares with no other, because some of its ancestors lie elsewhere.
CLOVER_HOST_DEVICE int own_blocks(const Span& span) {
  return span.contiguous >= span.length ? 0 : blocks_of(span.length) - span.contiguous / block_keys;
}

/// How a tile of `queries` queries is filled: query heads of one kv head by successive rows of a sequence.
struct TileShape {
  int heads;       // query heads of one kv head
  int heads_here;  // of them in one tile
  int rows;        // rows in one tile

  CLOVER_HOST_DEVICE TileShape(const AttentionCall& call, int queries)
      : heads(static_cast<int>(call.query_heads / call.kv_heads)),
        heads_here(heads < queries ? heads : queries),
        rows(queries / heads_here) {}
  CLOVER_HOST_DEVICE int head_parts() const { return (heads + heads_here - 1) / heads_here; }
};

/// A piece of work for one block of threads: a run of blocks of keys for one tile of rows.
struct alignas(16) AttentionItem {
  int32_t first_row, rows;
  int32_t chunk;          // the one of `chunks`; those behind take what rows of the tile have apart
  int32_t chunks, apart;  // items of the tile
  int32_t tile;           // its number
  int32_t common;         // positions that all its rows have in one run
  int32_t blocks;         // of keys, of its longest row
};

/// The most blocks of keys in an item. Items of fewer blocks than fold into a part leave a partial result for
/// each block.
constexpr int most_item_blocks = 16;
/// The number for items that take all of a path, however long.
constexpr int whole_path_blocks = 1 << 24;
CLOVER_HOST_DEVICE int part_blocks(int item_blocks, int most) {
  return item_blocks < most ? 1 : most;
}
/// The most items of a tile for the blocks of keys that its rows do not share.
constexpr int most_apart = 7;

/// Sizes of a plan and of its work, which depend on the shape of the call alone.
struct PlanShape {
  int groups;           // of four warps in a wide tile, or 0: tiles are of another kind
  int queries;          // of a tile
  int split;            // blocks of keys that fold into a part
  int64_t rows, heads;  // heads: blocks of threads for one item
  int64_t items;        // at most
  bool fine;            // whether partial results of single blocks have room
  int64_t parts;        // partial results of a query, at most
  int64_t head_size, query_heads;

  /// `warpgroups`: whether the GPU has wgmma (sm_90).
  PlanShape(const AttentionCall& call, int64_t shared_bytes, bool warpgroups);
  /// Blocks of threads that a multiprocessor runs at once.
  int at_once() const { return groups > 1 ? 1 : blocks_a_multiprocessor; }

  /// Offsets in int32 words: how many items, the blocks of each, then the arrays below.
  static constexpr int64_t header = 8;
  int64_t spans_at() const { return header; }
  int64_t items_at() const { return spans_at() + 4 * rows; }
  int64_t tiles_at() const { return items_at() + 8 * items; }
  int64_t arrived_at() const { return tiles_at() + 8 * rows; }
  int64_t words() const { return arrived_at() + rows * heads; }
  /// Floats of the workspace: sums of all partial results, then their largest scores and masses.
  int64_t workspace() const { return rows * query_heads * parts * (head_size + 2); }
};

/// The arrays of a plan on the device.
struct AttentionPlan {
  int32_t* header;  // items, blocks of each
  Span* spans;      // [rows]
  AttentionItem *items, *tiles;
  unsigned* arrived;  // [tiles, heads] zeros

  AttentionPlan(const PlanShape& shape, int32_t* words)
      : header(words),
        spans(reinterpret_cast<Span*>(words + shape.spans_at())),
        items(reinterpret_cast<AttentionItem*>(words + shape.items_at())),
        tiles(reinterpret_cast<AttentionItem*>(words + shape.tiles_at())),
        arrived(reinterpret_cast<unsigned*>(words + shape.arrived_at())) {}
};

/// Whether an average sequence has more queries than `queries`. A captured pass has one sequence more, which
/// holds padding rows.
inline bool more_queries_than(const AttentionCall& call, int64_t queries) {
  const int64_t sequences = call.sequences > 1 ? call.sequences - 1 : 1;
  return call.rows * (call.query_heads / call.kv_heads) > queries * sequences;
}

/// How many warpgroups share the keys of one wide tile; 0: the call has tiles of another kind.
inline int wide_groups(const AttentionCall& call, bool warpgroups) {
  const bool own_code = call.cache != Element::fp32 && (call.head_size == 64 || call.head_size == 128);
  if (!warpgroups || !own_code) return 0;
  return more_queries_than(call, wide_group_queries) ? 2 : 1;
}

/// Queries of a tile: two tensor-core tiles share keys where a sequence has enough queries, in the code that
/// is compiled for its head size.
inline int queries_a_tile(const AttentionCall& call, int64_t shared_bytes) {
  constexpr int64_t bytes_for_two = 115 << 10;
  const bool own_code = call.cache == Element::bf16 && (call.head_size == 64 || call.head_size == 128);
  const bool more = more_queries_than(call, tensor_queries);
  return own_code && more && shared_bytes >= bytes_for_two ? most_tile_queries : tensor_queries;
}

inline PlanShape::PlanShape(const AttentionCall& call, int64_t shared_bytes, bool warpgroups)
    : groups(wide_groups(call, warpgroups)),
      queries(groups > 0 ? wide_group_queries * groups : queries_a_tile(call, shared_bytes)),
      split(groups > 0 ? wide_part_blocks : split_blocks),
      rows(call.rows),
      heads(call.kv_heads * TileShape(call, queries).head_parts()),
      head_size(call.head_size),
      query_heads(call.query_heads) {
  constexpr int64_t enough_items = 2048, most_fine = int64_t{8} << 20;
  const int64_t longest = call.pages_per_sequence * call.page_size;
  const int64_t filled = (longest + block_keys - 1) / block_keys, blocks = filled > 0 ? filled : 1;
  const int64_t fewest = rows * ((blocks + most_item_blocks - 1) / most_item_blocks);
  items = fewest > enough_items ? fewest : enough_items;
  fine = rows * query_heads * blocks * (head_size + 2) <= most_fine;
  parts = fine ? blocks : (blocks + split - 1) / split;
}

/// Elements from one row of keys to the next in shared memory: room for `size` elements of 16 bits, a
/// multiple of 16, such that the 8 bytes (keys) or 16 bytes (values) that lanes read at once lie in different
/// banks.
CLOVER_HOST_DEVICE int key_stride(int size) {
  return size / 2 % 16 == 0 ? size + 16 : size;
}
CLOVER_HOST_DEVICE int value_stride(int size) {
  return size + 8;
}

}  // namespace clover::kernels::cuda
