#pragma once

#include "kernels/attention/attention_plan.h"
#include "kernels/gpu/warpgroup_boxes.cuh"
#include "kernels/rows/cache_row.h"

// Which blocks of keys and values a wide tile of queries takes, in order, and how TMA copies them to shared
// memory: in boxes of 64 rows of a page, of 8 rows where a path ends or pages are small, and of one row where
// ancestors lie elsewhere.
namespace clover::kernels::cuda {
namespace {

/// A block of keys for the rows whose paths agree on it with that of the row `leader`, or for that row alone.
struct KeyStep {
  int start = 0, leader = 0;
  bool alone = false, exists = false;
};

/// Whether a row shares its keys of a block with no other row.
__device__ inline bool lies_apart(const Span& span, int start) {
  const int count = count_in_block(span, start);
  return count > 0 && span.contiguous - start < count;
}

/// The steps of an item, in order: for each of its blocks the keys that rows share, then alone each row whose
/// ancestors lie elsewhere. Where a tile has items of their own for those, the other items take the first
/// step of each block only, and those items take the remaining steps in turn.
class KeySteps {
 public:
  __device__ KeySteps(const AttentionItem& item, const Span* spans, int item_blocks)
      : spans_(spans),
        rows_(item.rows),
        common_(item.common),
        turns_(item.apart),
        turn_(item.chunk - item.chunks),
        own_row_(item.rows) {
    const int first = turn_ < 0 ? item.chunk * item_blocks : item.common / block_keys;
    const int left = item.blocks - first;
    start_ = (first - 1) * block_keys;
    left_ = turn_ >= 0 || left < item_blocks ? left : item_blocks;
  }

  __device__ KeyStep next() {
    for (;;) {
      const KeyStep step = following();
      if (!step.exists || turns_ == 0) return step;
      const bool first = step.start != last_start_;
      last_start_ = step.start;
      if (turn_ < 0 ? first : !first && number_++ % turns_ == turn_) return step;
    }
  }

 private:
  __device__ KeyStep following() {
    for (;;) {
      for (; own_row_ < rows_; ++own_row_)
        if (lies_apart(spans_[own_row_], start_)) return {start_, own_row_++, true, true};
      if (left_-- <= 0) return {};
      start_ += block_keys;
      if (start_ + block_keys <= common_) return {start_, 0, false, true};
      const KeyStep shared = look();
      if (shared.exists) return shared;
    }
  }

  __device__ KeyStep look() {
    KeyStep shared{start_, 0, false, false};
    int longest = 0;
    own_row_ = rows_;
    for (int row = rows_ - 1; row >= 0; --row) {
      const Span span = spans_[row];
      const int count = count_in_block(span, start_);
      if (count <= 0) continue;
      if (span.contiguous - start_ < count) {
        own_row_ = row;
      } else if (count >= longest) {
        longest = count, shared.leader = row, shared.exists = true;
      }
    }
    return shared;
  }

  const Span* spans_;
  int rows_, common_, turns_, turn_, own_row_, start_, left_;
  int last_start_ = -1, number_ = 0;
};

/// The tensor maps of a layer's keys or values, as rows of heads one after the other, in boxes of 64, 8 and
/// one row.
struct RowMaps {
  TensorMap block, eight, one;
};
struct CacheMaps {
  RowMaps keys, values;
};

/// The keys of a step, and where they lie; a lane finds those of one box of eight.
class StepCopies {
 public:
  __device__ StepCopies(const AttentionCall& call, const int32_t* pages, int64_t kv_head, const Span& span,
                        int start)
      : call_(call), pages_(pages), kv_head_(kv_head), span_(span), start_(start) {
    count_ = count_in_block(span, start);
    const int reach = span.contiguous - start;
    reach_ = reach < count_ ? reach : count_;
  }

  /// Begins to copy all of it, or zeros beyond the last key, to `to`: boxes of 64 columns one after the
  /// other.
  template <int Halves>
  __device__ __forceinline__ void copy(unsigned char* to, const RowMaps& maps, Barrier* barrier) const {
    const int lane = threadIdx.x % warp_size;
    if (reach_ == block_keys && call_.page_size % block_keys == 0) {
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
  /// Boxes beyond the cache are zeros.
  __device__ int nowhere() const { return static_cast<int>(call_.pages * call_.kv_heads * call_.page_size); }

  __device__ void copy_eight(unsigned char* to, const RowMaps& maps, int column, int first,
                             Barrier* barrier) const {
    // Rows of the page behind the last key may come with it: their weights are zero.
    const bool together =
        call_.page_size % 8 == 0 && first < reach_ && (first + 8 <= reach_ || reach_ == count_);
    if (together || first >= count_)
      return copy_box(to, maps.eight, column, together ? row_at(start_ + first) : nowhere(), barrier);
#pragma unroll 1
    for (int i = 0; i < 8; ++i) {
      const int key = first + i, position = start_ + key;
      int row = nowhere();
      if (key < reach_) {
        row = row_at(position);
      } else if (key < count_) {
        row = row_at(call_.path[span_.rest + position - span_.contiguous]);
      }
      copy_box(to + i * swizzled_row_bytes, maps.one, column, row, barrier);
    }
  }

  const AttentionCall& call_;
  const int32_t* pages_;
  int64_t kv_head_;
  const Span& span_;
  int start_, count_, reach_;
};

}  // namespace
}  // namespace clover::kernels::cuda
