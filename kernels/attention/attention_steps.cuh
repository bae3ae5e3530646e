#pragma once

#include "kernels/attention/attention_tile.cuh"
#include "kernels/rows/cache_row.h"

// The steps of an item: which blocks of keys a tile takes one after the other, and what it does with each.
// attention_plan.h defines items, tiles, blocks, spans and private keys; attention_tile.cuh has the tile in
// shared memory, and the bf16 parts of numbers. Template arguments: T, the type of cached numbers; Parts,
// their bf16 parts; Size, the head size, or 0 if it is not a constant; Tiles, tiles of 16 queries.
namespace clover::kernels::cuda {
namespace {

/// Whether the next block of keys and values is copied while the present one is computed: shared memory must
/// have room for two. `Pieces`: head size / 64, rounded up.
template <class T, int Pieces>
constexpr bool pipelined = !keys_values_share_memory<T> && Pieces <= 2;
template <class T, int Pieces>
constexpr int stages = pipelined<T, Pieces> ? 2 : 1;

/// A block of keys and the rows of the tile that attend to it.
struct Step {
  int start = 0;         // its first position
  int leader = 0;        // row of the tile: the member with the most keys in the block
  unsigned members = 0;  // rows of the tile, a bit each; their keys are the first ones of the leader's
  __device__ bool exists() const { return members != 0; }
};

/// The steps of an item, in order. For each block of keys the first step is for all rows that share it; one
/// step follows for each row with private keys there. If the tile has private items, its other items take
/// only the shared steps, and the private items take the private steps in turn.
class Steps {
 public:
  __device__ Steps(const AttentionItem& item, const Span* spans, int item_blocks)
      : spans_(spans),
        rows_(item.rows),
        shared_length_(item.shared_length),
        private_items_(item.private_items),
        private_item_(item.chunk - item.chunks) {
    const int first = private_item_ < 0 ? item.chunk * item_blocks : item.shared_length / block_keys;
    const int left = item.blocks - first;
    start_ = (first - 1) * block_keys;
    left_ = private_item_ >= 0 || left < item_blocks ? left : item_blocks;
  }

  /// The next step of this item; after the last one, a step that does not exist.
  __device__ Step next() {
    for (;;) {
      const Step step = next_of_tile();
      if (!step.exists() || private_items_ == 0) return step;
      const bool first = step.start != last_start_;
      last_start_ = step.start;
      if (private_item_ < 0 ? first : !first && private_steps_++ % private_items_ == private_item_)
        return step;
    }
  }

 private:
  /// The next step of the tile's blocks, whether it belongs to this item or not.
  __device__ Step next_of_tile() {
    while (private_rows_ == 0) {
      if (left_-- <= 0) return {};
      start_ += block_keys;
      // What shared_step would return, without a look at the rows.
      if (start_ + block_keys <= shared_length_) return {start_, 0, (2u << (rows_ - 1)) - 1};
      const Step shared = shared_step();
      if (shared.exists()) return shared;
    }
    const unsigned lowest = private_rows_ & (~private_rows_ + 1);
    private_rows_ ^= lowest;
    return {start_, highest_bit(lowest), lowest};
  }

  /// The shared step of the present block; fills private_rows_.
  __device__ Step shared_step() {
    Step shared{start_, 0, 0};
    int longest = 0;
    for (int row = 0; row < rows_; ++row) {
      const int count = count_in_block(spans_[row], start_);
      if (count <= 0) continue;
      if (spans_[row].contiguous - start_ < count) {
        private_rows_ |= 1u << row;
        continue;
      }
      if (count > longest) longest = count, shared.leader = row;
      shared.members |= 1u << row;
    }
    return shared;
  }

  const Span* spans_;
  int rows_, shared_length_, private_items_;
  int private_item_;  // number of this item among the private ones; below 0: it is not private
  int start_;         // first position of the present block of keys
  int left_;          // blocks that come after it
  int last_start_ = -1, private_steps_ = 0;
  unsigned private_rows_ = 0;  // rows whose private step of the present block is to come, a bit each
};

/// Where this thread's key of a step is in the cache; `exists` is false if the thread has no key.
struct LocatedKey {
  bool exists = false;
  PagePlace place{};
};
__device__ __forceinline__ LocatedKey locate_key(const Work& work, const Span* spans, const Step& step) {
  const int key = threadIdx.x;
  LocatedKey located;
  if (!step.exists() || key >= block_keys) return located;
  const Span& span = spans[step.leader];
  const int position = step.start + key;
  if (key >= count_in_block(span, step.start)) return located;
  const int slot =
      position < span.contiguous ? position : work.call.path[span.tail_begin + position - span.contiguous];
  located.exists = true;
  located.place = place_of(slot, work.call.page_size, work.pages);
  return located;
}
__device__ __forceinline__ void store_key_place(const Work& work, const LocatedKey& located, int32_t* place) {
  if (threadIdx.x >= block_keys) return;
  const int64_t row = cache_row(work.call, located.place, work.kv_head);
  place[threadIdx.x] = located.exists ? static_cast<int32_t>(row * (work.call.head_size / 8)) : -1;
}
__device__ inline void locate_keys(const Work& work, const Span* spans, const Step& step, int32_t* place) {
  store_key_place(work, locate_key(work, spans, step), place);
}

/// weigh_queries for this warp's queries of the tile, of which it has `Queries`.
template <int Queries, int Tiles>
__device__ __forceinline__ void weigh_each(const Work& work, const Tile<Tiles>& tile, const Span* spans,
                                           const Step& step) {
  int query[Queries], count[Queries];
#pragma unroll
  for (int q = 0; q < Queries; ++q) {
    query[q] = threadIdx.x / warp_size + q * warps;
    const int row = work.row_of(query[q]);
    const bool member = query[q] < work.queries() && (step.members >> row & 1u) != 0;
    count[q] = member ? count_in_block(spans[row], step.start) : 0;
  }
  weigh_queries<Queries>(tile, query, count);
}
template <int Tiles>
__device__ __forceinline__ void weigh_step(const Work& work, const Tile<Tiles>& tile, const Span* spans,
                                           const Step& step) {
  if (Tiles == 1 && work.queries() <= warps) return weigh_each<1>(work, tile, spans, step);
  weigh_each<2 * Tiles>(work, tile, spans, step);
}

// Scores of the tile's queries for a block of keys, and their weighted values; fewer instructions if the tile
// has at most eight queries.
template <int Parts, int Size, int Tiles>
__device__ __forceinline__ void score_step(const Work& work, const Tile<Tiles>& tile, const Bf16* keys) {
  if (Tiles == 1 && work.queries() <= 8) return score_block<Parts, Size, Rows::eight>(work.call, tile, keys);
  score_block<Parts, Size, Rows::sixteen>(work.call, tile, keys);
}
template <int Parts, int Size, int Tiles, int Eights>
__device__ __forceinline__ void add_step(const Work& work, const Tile<Tiles>& tile, const Bf16* values,
                                         Sums<Eights>& sums) {
  if (Tiles == 1 && work.queries() <= 8) return add_block<Parts, Size, Rows::eight>(tile, values, sums);
  add_block<Parts, Size, Rows::sixteen>(tile, values, sums);
}

/// Computes one step after the other and calls after_step(step, the next step) after each.
template <class T, int Size, int Tiles, int Eights, class AfterStep>
__device__ __forceinline__ void attend_steps(const Work& work, const Tile<Tiles>& tile, const Span* spans,
                                             Steps& steps, Sums<Eights>& sums, const AfterStep& after_step) {
  constexpr int parts = bf16_parts<T>;
  load_queries(work, tile);
  __syncthreads();  // an item without steps writes results at once
  Step step = steps.next();
  while (step.exists()) {
    locate_keys(work, spans, step, tile.place);
    __syncthreads();
    load_block<T, Size>(tile, tile.place, work.call.k, tile.key, tile.key_step);
    if (!keys_values_share_memory<T>)
      load_block<T, Size>(tile, tile.place, work.call.v, tile.value, tile.value_step);
    wait_for_copies<keys_values_share_memory<T> ? 0 : 1>();
    __syncthreads();
    score_step<parts, Size>(work, tile, tile.key);
    __syncthreads();
    if (keys_values_share_memory<T>)
      load_block<T, Size>(tile, tile.place, work.call.v, tile.value, tile.value_step);
    weigh_step(work, tile, spans, step);
    wait_for_copies<0>();
    __syncthreads();
    add_step<parts, Size>(work, tile, tile.value, sums);
    __syncthreads();  // the next step overwrites keys and values
    const Step following = steps.next();
    after_step(step, following);
    step = following;
  }
}

/// The same in a pipeline: meanwhile the keys and values of the next step are copied, and the cache rows of
/// the step after that are looked up.
template <class T, int Size, int Tiles, int Eights, class AfterStep>
__device__ __forceinline__ void attend_pipelined(const Work& work, const Tile<Tiles>& tile, const Span* spans,
                                                 Steps& steps, Sums<Eights>& sums,
                                                 const AfterStep& after_step) {
  const auto place = [&](int number) { return tile.place + number % Tile<Tiles>::places * block_keys; };
  const auto keys = [&](int number) { return tile.key + number % 2 * tile.key_stage_size; };
  const auto values = [&](int number) { return tile.value + number % 2 * tile.value_stage_size; };
  const auto load = [&](const Step& step, int number) {
    if (step.exists()) {
      load_block<T, Size>(tile, place(number), work.call.k, keys(number), tile.key_step);
      load_block<T, Size>(tile, place(number), work.call.v, values(number), tile.value_step);
    } else {
      end_copy_group(), end_copy_group();
    }
  };
  Step step = steps.next(), following = steps.next();
  locate_keys(work, spans, step, place(0));
  locate_keys(work, spans, following, place(1));
  __syncthreads();
  load(step, 0);
  load_queries(work, tile);
  for (int number = 0; step.exists(); ++number) {
    load(following, number + 1);
    const Step later = steps.next();
    const LocatedKey located = locate_key(work, spans, later);  // these loads run while scores are computed
    wait_for_copies<3>();  // for the step's keys; its values and the next step's two groups may be pending
    __syncthreads();
    score_step<1, Size>(work, tile, keys(number));
    if (later.exists()) store_key_place(work, located, place(number + 2));
    __syncthreads();
    weigh_step(work, tile, spans, step);
    wait_for_copies<2>();
    __syncthreads();
    add_step<1, Size>(work, tile, values(number), sums);
    __syncthreads();  // the next copies overwrite keys and values
    after_step(step, following);
    step = following;
    following = later;
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
