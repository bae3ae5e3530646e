#pragma once

#include "kernels/attention/attention_plan.h"
#include "kernels/gpu/warpgroup_boxes.cuh"
#include "kernels/rows/cache_row.h"

// The steps of an item of wide tiles (attention_wide.cuh): which blocks of keys and values they take, in
// order, and how TMA copies these to shared memory: in boxes of 64 rows of a page; of 8 rows if a path ends
// or pages are small; of one row for tree ancestors that are not in the contiguous part of a path.
// attention_plan.h defines items, tiles, blocks, spans and private keys; kernels/gpu/async_copies.cuh boxes.
namespace clover::kernels::cuda {
namespace {

/// A block of keys, and which rows of the tile attend to it.
struct KeyStep {
  int start = 0;             // its first position
  int leader = 0;            // row of the tile whose keys are copied
  bool leader_only = false;  // true: for the leader alone; false: for all rows that share the block
  bool exists = false;
};

/// Whether a row's keys in the block that begins at `start` are private: not all are in its contiguous part.
__device__ inline bool has_private_keys(const Span& span, int start) {
  const int count = count_in_block(span, start);
  return count > 0 && span.contiguous - start < count;
}

/// The steps of an item, in order. For each block of keys the first step is for all rows that share it; one
/// step follows for each row with private keys there. If the tile has private items, its other items take
/// only the shared steps, and the private items take the private steps in turn.
class KeySteps {
 public:
  __device__ KeySteps(const AttentionItem& item, const Span* spans, int item_blocks)
      : spans_(spans),
        rows_(item.rows),
        shared_length_(item.shared_length),
        private_items_(item.private_items),
        private_item_(item.chunk - item.chunks),
        next_private_row_(item.rows) {
    const int first = private_item_ < 0 ? item.chunk * item_blocks : item.shared_length / block_keys;
    const int left = item.blocks - first;
    start_ = (first - 1) * block_keys;
    left_ = private_item_ >= 0 || left < item_blocks ? left : item_blocks;
  }

  /// The next step of this item; after the last one, a step that does not exist.
  __device__ KeyStep next() {
    for (;;) {
      const KeyStep step = next_of_tile();
      if (!step.exists || private_items_ == 0) return step;
      const bool first = step.start != last_start_;
      last_start_ = step.start;
      if (private_item_ < 0 ? first : !first && private_steps_++ % private_items_ == private_item_)
        return step;
    }
  }

 private:
  /// The next step of the tile's blocks, whether it belongs to this item or not.
  __device__ KeyStep next_of_tile() {
    for (;;) {
      for (; next_private_row_ < rows_; ++next_private_row_)
        if (has_private_keys(spans_[next_private_row_], start_))
          return {start_, next_private_row_++, true, true};
      if (left_-- <= 0) return {};
      start_ += block_keys;
      if (start_ + block_keys <= shared_length_) return {start_, 0, false, true};
      const KeyStep shared = shared_step();
      if (shared.exists) return shared;
    }
  }

  /// The shared step of the present block; sets next_private_row_.
  __device__ KeyStep shared_step() {
    KeyStep shared{start_, 0, false, false};
    int longest = 0;
    next_private_row_ = rows_;
    for (int row = rows_ - 1; row >= 0; --row) {
      const Span span = spans_[row];
      const int count = count_in_block(span, start_);
      if (count <= 0) continue;
      if (span.contiguous - start_ < count) {
        next_private_row_ = row;
      } else if (count >= longest) {
        longest = count, shared.leader = row, shared.exists = true;
      }
    }
    return shared;
  }

  const Span* spans_;
  int rows_, shared_length_, private_items_;
  int private_item_;      // number of this item among the private ones; below 0: it is not private
  int next_private_row_;  // where the search for the block's next private step begins
  int start_;             // first position of the present block of keys
  int left_;              // blocks that come after it
  int last_start_ = -1, private_steps_ = 0;
};

/// Tensor maps of a layer's keys or values [pages * kv heads * page size, head size], with boxes of 64, 8 and
/// one row.
struct RowMaps {
  TensorMap block, eight, one;
};
struct CacheMaps {
  RowMaps keys, values;
};

/// Copies the keys or values of a step to shared memory. One warp calls it; each lane copies one box of 64 or
/// 8 rows.
class StepCopies {
 public:
  __device__ StepCopies(const AttentionCall& call, const int32_t* pages, int64_t kv_head, const Span& span,
                        int start)
      : call_(call), pages_(pages), kv_head_(kv_head), span_(span), start_(start) {
    count_ = count_in_block(span, start);
    const int contiguous_count = span.contiguous - start;
    contiguous_count_ = contiguous_count < count_ ? contiguous_count : count_;
  }

  /// Begins to copy the block to `to` [Halves, 64 rows, 64 columns], with zeros beyond the last key.
  template <int Halves>
  __device__ __forceinline__ void copy(unsigned char* to, const RowMaps& maps, Barrier* barrier) const {
    const int lane = threadIdx.x % warp_size;
    if (contiguous_count_ == block_keys && call_.page_size % block_keys == 0) {
      if (lane < Halves)
        copy_box(to + lane * box_bytes, maps.block, lane * box_columns, row_at(start_), barrier);
      return;
    }
    if (lane < eights * Halves)
      copy_eight(to + lane * eight_bytes, maps, lane / eights * box_columns, lane % eights * 8, barrier);
  }

 private:
  static constexpr int box_columns = 64, box_bytes = block_keys * swizzled_row_bytes, eights = block_keys / 8,
                       eight_bytes = 8 * swizzled_row_bytes;

  __device__ int row_at(int slot) const {
    return static_cast<int>(cache_row(call_, place_of(slot, call_.page_size, pages_), kv_head_));
  }
  /// A box that begins here is filled with zeros.
  __device__ int row_beyond_cache() const {
    return static_cast<int>(call_.pages * call_.kv_heads * call_.page_size);
  }

  __device__ void copy_eight(unsigned char* to, const RowMaps& maps, int column, int first,
                             Barrier* barrier) const {
    // A box may include rows of the page after the last key: their weights are zero.
    const bool in_one_box = call_.page_size % 8 == 0 && first < contiguous_count_ &&
                            (first + 8 <= contiguous_count_ || contiguous_count_ == count_);
    if (in_one_box || first >= count_)
      return copy_box(to, maps.eight, column, in_one_box ? row_at(start_ + first) : row_beyond_cache(),
                      barrier);
#pragma unroll 1
    for (int i = 0; i < 8; ++i) {
      const int key = first + i, position = start_ + key;
      int row = row_beyond_cache();
      if (key < contiguous_count_) {
        row = row_at(position);
      } else if (key < count_) {
        row = row_at(call_.path[span_.tail_begin + position - span_.contiguous]);
      }
      copy_box(to + i * swizzled_row_bytes, maps.one, column, row, barrier);
    }
  }

  const AttentionCall& call_;
  const int32_t* pages_;
  int64_t kv_head_;
  const Span& span_;
  int start_;             // first position of the block
  int count_;             // keys of the path in the block
  int contiguous_count_;  // how many of these are in the contiguous part of the path; 0 or less: none
};

}  // namespace
}  // namespace clover::kernels::cuda
