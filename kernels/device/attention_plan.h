#pragma once

#include "kernels/calls.h"
#include "kernels/device/numbers.h"

// The arithmetic of where tree_attention's keys lie and who works on them: on the device and in tests.
namespace clover::kernels::cuda {

constexpr int block_keys = 64;   // attention_block
constexpr int split_keys = 256;  // keys of one partial result: a multiple of block_keys
constexpr int tile_queries = 16;
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

/// The leading positions of a row's path that lie in slots 0 .. contiguous - 1, its length, and the slots of
/// the rest.
struct Span {
  int contiguous, length;
  const int32_t* rest;
};

CLOVER_BOTH int path_length(const AttentionCall& call, int64_t row) {
  return call.contiguous[row] + call.path_begin[row + 1] - call.path_begin[row];
}

/// A path that goes on where the contiguous part stops is part of it, so that such rows share their blocks.
CLOVER_BOTH Span span_of(const AttentionCall& call, int64_t row) {
  const int32_t *path = call.path + call.path_begin[row], *end = call.path + call.path_begin[row + 1];
  Span span{call.contiguous[row], path_length(call, row), path};
  while (span.rest < end && *span.rest == span.contiguous) {
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

CLOVER_BOTH int splits_of(int length) {
  return length <= split_keys ? 1 : (length + split_keys - 1) / split_keys;
}

/// Index of a slot's first element, of one kv head, in the cache.
CLOVER_BOTH int64_t cache_index(const AttentionCall& call, const int32_t* pages, int64_t slot,
                                int64_t kv_head) {
  const int64_t page = pages[slot / call.page_size];
  return ((page * call.page_size + slot % call.page_size) * call.kv_heads + kv_head) * call.head_size;
}

/// How the query heads of a kv head and successive rows of a sequence fill a tile of 16 queries.
struct TileShape {
  int heads;       // query heads of one kv head
  int heads_here;  // of them in one tile
  int rows;        // rows in one tile

  CLOVER_BOTH explicit TileShape(const AttentionCall& call)
      : heads(static_cast<int>(call.query_heads / call.kv_heads)),
        heads_here(heads < tile_queries ? heads : tile_queries),
        rows(tile_queries / heads_here) {}
  CLOVER_BOTH int head_parts() const { return (heads + heads_here - 1) / heads_here; }
  /// As many tiles as rows of `sequences` sequences make where each one's stand together.
  CLOVER_BOTH int64_t tiles(int64_t all_rows, int64_t sequences) const { return all_rows / rows + sequences; }
};

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
