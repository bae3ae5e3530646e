#pragma once

#include "kernels/calls.h"
#include "kernels/gpu/numbers.h"

// The arithmetic of where tree_attention's keys lie and who works on them: on the device and in tests.
namespace clover::kernels::cuda {

constexpr int block_keys = 64;   // attention_block
constexpr int split_keys = 256;  // attention_split
constexpr int split_blocks = split_keys / block_keys;
constexpr int tensor_queries = 16;  // that a tensor core takes at once
constexpr int most_tile_queries = 2 * tensor_queries;
constexpr int wide_part_blocks =
    16;  // that fold into a part in wide tiles, of sm_90's products of four warps
constexpr int blocks_a_multiprocessor = 2;                       // of threads, that attend at once
constexpr int largest_head = 256;                                // whose keys and values fit in shared memory
constexpr int64_t most_attention_workspace = int64_t{32} << 20;  // floats; more rows go one after the other

/// The call for `count` rows from `first` on.
inline AttentionCall rows_of(AttentionCall call, int64_t first, int64_t count) {
  const int64_t width = call.query_heads * call.head_size;
  call.q += first * width;
  call.out = static_cast<char*>(call.out) + first * width * (call.result == Element::fp32 ? 4 : 2);
  call.sequence += first;
  call.contiguous += first;
  call.path_begin += first;
  call.rows = count;
  return call;
}

/// The leading positions of a row's path that lie in slots 0 .. contiguous - 1, its length, and where in
/// AttentionCall::path the slots of the rest begin.
struct alignas(16) Span {
  int32_t contiguous, length, rest, unused;
};

/// A path that goes on where the contiguous part stops is part of it, so that such rows share their blocks.
CLOVER_BOTH Span span_of(const AttentionCall& call, int64_t row) {
  const int32_t begin = call.path_begin[row], end = call.path_begin[row + 1];
  Span span{call.contiguous[row], call.contiguous[row] + end - begin, begin, 0};
  while (span.rest < end && call.path[span.rest] == span.contiguous) {
    ++span.contiguous;
    ++span.rest;
  }
  return span;
}

/// Keys of the block that begins at position `start` which the row sees.
CLOVER_BOTH int count_in_block(const Span& span, int start) {
  const int left = span.length - start;
  return left < block_keys ? left : block_keys;
}

CLOVER_BOTH int blocks_of(int length) {
  return (length + block_keys - 1) / block_keys;
}

/// Blocks of keys that are none other row's, because the row's ancestors lie elsewhere.
CLOVER_BOTH int own_blocks(const Span& span) {
  return span.contiguous >= span.length ? 0 : blocks_of(span.length) - span.contiguous / block_keys;
}

/// How the query heads of a kv head and successive rows of a sequence fill a tile of `queries`.
struct TileShape {
  int heads;       // query heads of one kv head
  int heads_here;  // of them in one tile
  int rows;        // rows in one tile

  CLOVER_BOTH TileShape(const AttentionCall& call, int queries)
      : heads(static_cast<int>(call.query_heads / call.kv_heads)),
        heads_here(heads < queries ? heads : queries),
        rows(queries / heads_here) {}
  CLOVER_BOTH int head_parts() const { return (heads + heads_here - 1) / heads_here; }
};

/// What one block of threads does for one tile of rows: some blocks of keys that follow each other.
struct alignas(16) AttentionItem {
  int32_t first_row, rows;
  int32_t chunk;          // the one of `chunks`; those behind take what rows of the tile have apart
  int32_t chunks, apart;  // items of the tile
  int32_t tile;           // its number
  int32_t common;         // positions that all its rows have in one run
  int32_t blocks;         // of keys, of its longest row
};

/// Blocks of keys an item takes.  With fewer of them than fold into a part each leaves a partial result.
constexpr int most_item_blocks = 16;
/// Or all of a path's, where parts fold into the result at once: more than any path has.
constexpr int whole_path_blocks = 1 << 24;
CLOVER_BOTH int part_blocks(int item_blocks, int most) {
  return item_blocks < most ? 1 : most;
}
/// Items that take single blocks apart from what the rows of a tile share, at most.
constexpr int most_apart = 7;

/// Sizes of a plan and of what is done by it, from the shape of the call alone.
struct PlanShape {
  int groups;           // of four warps in a wide tile, or 0: tiles are of another kind
  int queries;          // of a tile
  int split;            // blocks of keys that fold into a part
  int64_t rows, heads;  // heads: blocks of threads for one item
  int64_t items;        // at most
  bool fine;            // whether partial results of single blocks have room
  int64_t parts;        // partial results of a query, at most
  int64_t head_size, query_heads;

  /// warpgroups: whether the GPU has sm_90's products of four warps.
  PlanShape(const AttentionCall& call, int64_t shared_bytes, bool warpgroups);
  /// Blocks of threads that a multiprocessor runs at once.
  int at_once() const { return groups > 1 ? 1 : blocks_a_multiprocessor; }

  /// int32 words: how many items, blocks of each, then those below.
  static constexpr int64_t header = 8;
  int64_t spans_at() const { return header; }
  int64_t items_at() const { return spans_at() + 4 * rows; }
  int64_t tiles_at() const { return items_at() + 8 * items; }
  int64_t arrived_at() const { return tiles_at() + 8 * rows; }
  int64_t words() const { return arrived_at() + rows * heads; }
  /// fp32: sums of all partial results, then their largest scores and masses.
  int64_t workspace() const { return rows * query_heads * parts * (head_size + 2); }
};

/// A plan on the device.
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

/// Rows of a sequence, about: a recorded pass has one sequence more, for rows that fill up.
inline bool more_queries_than(const AttentionCall& call, int64_t queries) {
  const int64_t sequences = call.sequences > 1 ? call.sequences - 1 : 1;
  return call.rows * (call.query_heads / call.kv_heads) > queries * sequences;
}

/// Whether wide tiles take the call, and how many groups of four warps then share the keys of one.
inline int wide_groups(const AttentionCall& call, bool warpgroups) {
  constexpr int group_queries = 64;
  const bool own_code = call.cache != Element::fp32 && (call.head_size == 64 || call.head_size == 128);
  if (!warpgroups || !own_code) return 0;
  return more_queries_than(call, group_queries) ? 2 : 1;
}

/// Two tensor-core tiles of queries share keys where one sequence's fill more than one, in the code that is
/// made for its head size.
inline int queries_a_tile(const AttentionCall& call, int64_t shared_bytes) {
  constexpr int64_t bytes_for_two = 115 << 10;
  const bool own_code = call.cache == Element::bf16 && (call.head_size == 64 || call.head_size == 128);
  const bool more = more_queries_than(call, tensor_queries);
  return own_code && more && shared_bytes >= bytes_for_two ? most_tile_queries : tensor_queries;
}

inline PlanShape::PlanShape(const AttentionCall& call, int64_t shared_bytes, bool warpgroups)
    : groups(wide_groups(call, warpgroups)),
      queries(groups > 0 ? 64 * groups : queries_a_tile(call, shared_bytes)),
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
CLOVER_BOTH int key_stride(int size) {
  return size / 2 % 16 == 0 ? size + 16 : size;
}
CLOVER_BOTH int value_stride(int size) {
  return size + 8;
}

}  // namespace clover::kernels::cuda
