#pragma once

#include "kernels/attention/attention_tile.cuh"
#include "kernels/rows/cache_row.h"

// The blocks of keys that a tile takes one after the other, and what it does with each.
namespace clover::kernels::cuda {
namespace {

/// Whether the next block of keys and values is fetched while one is worked on: where there is room for two.
template <class T, int Pieces>
constexpr bool pipelined = !share_room<T> && Pieces <= 2;
template <class T, int Pieces>
constexpr int stages = pipelined<T, Pieces> ? 2 : 1;

/// A block of keys that rows of the tile take together: `members`, whose paths agree on it with that of
/// `leader`, the longest.
struct Step {
  int start = 0, leader = 0;
  unsigned members = 0;
  __device__ bool exists() const { return members != 0; }
};

/// The steps of an item, in order: for each of its blocks of keys the rows that share it, then alone each row
/// whose ancestors lie elsewhere. Where a tile has items of their own for those, the other items take the
/// first step of each block only, and those items take the remaining steps in turn.
class Steps {
 public:
  __device__ Steps(const AttentionItem& item, const Span* spans, int item_blocks)
      : spans_(spans),
        rows_(item.rows),
        common_(item.common),
        turns_(item.apart),
        turn_(item.chunk - item.chunks) {
    const int first = turn_ < 0 ? item.chunk * item_blocks : item.common / block_keys;
    const int left = item.blocks - first;
    start_ = (first - 1) * block_keys;
    left_ = turn_ >= 0 || left < item_blocks ? left : item_blocks;
  }

  __device__ Step next() {
    for (;;) {
      const Step step = following();
      if (!step.exists() || turns_ == 0) return step;
      const bool first = step.start != last_start_;
      last_start_ = step.start;
      if (turn_ < 0 ? first : !first && number_++ % turns_ == turn_) return step;
    }
  }

 private:
  __device__ Step following() {
    while (own_ == 0) {
      if (left_-- <= 0) return {};
      start_ += block_keys;
      if (start_ + block_keys <= common_) return {start_, 0, (2u << (rows_ - 1)) - 1};  // as `look` would say
      const Step shared = look();
      if (shared.exists()) return shared;
    }
    const unsigned lowest = own_ & (~own_ + 1);
    own_ ^= lowest;
    return {start_, highest_bit(lowest), lowest};
  }

  __device__ Step look() {
    Step shared{start_, 0, 0};
    int longest = 0;
    for (int row = 0; row < rows_; ++row) {
      const int count = count_in_block(spans_[row], start_);
      if (count <= 0) continue;
      if (spans_[row].contiguous - start_ < count) {
        own_ |= 1u << row;
        continue;
      }
      if (count > longest) longest = count, shared.leader = row;
      shared.members |= 1u << row;
    }
    return shared;
  }

  const Span* spans_;
  int rows_, common_, turns_, turn_, start_, left_;
  int last_start_ = -1, number_ = 0;
  unsigned own_ = 0;
};

/// The cache row of this thread's key of the step.
struct Found {
  bool exists = false;
  PagePlace place{};
};
__device__ __forceinline__ Found find_key(const Work& work, const Span* spans, const Step& step) {
  const int key = threadIdx.x;
  Found found;
  if (!step.exists() || key >= block_keys) return found;
  const Span& span = spans[step.leader];
  const int position = step.start + key;
  if (key >= count_in_block(span, step.start)) return found;
  const int slot =
      position < span.contiguous ? position : work.call.path[span.rest + position - span.contiguous];
  found.exists = true;
  found.place = place_of(slot, work.call.page_size, work.pages);
  return found;
}
__device__ __forceinline__ void keep_key(const Work& work, const Found& found, int32_t* place) {
  if (threadIdx.x >= block_keys) return;
  const int64_t row = cache_row(work.call, found.place, work.kv_head);
  place[threadIdx.x] = found.exists ? static_cast<int32_t>(row * (work.call.head_size / 8)) : -1;
}
__device__ inline void find_keys(const Work& work, const Span* spans, const Step& step, int32_t* place) {
  keep_key(work, find_key(work, spans, step), place);
}

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

/// `tile`'s scores for a block of keys, and its weighted values.
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

/// Takes one step after the other and calls done(step, following) after each.
template <class T, int Size, int Tiles, int Eights, class Done>
__device__ __forceinline__ void attend_steps(const Work& work, const Tile<Tiles>& tile, const Span* spans,
                                             Steps& steps, Sums<Eights>& sums, const Done& done) {
  constexpr int parts = parts_of<T>;
  load_queries(work, tile);
  __syncthreads();  // before results are written, even of no step
  Step step = steps.next();
  while (step.exists()) {
    find_keys(work, spans, step, tile.place);
    __syncthreads();
    load_block<T, Size>(tile, tile.place, work.call.k, tile.key, tile.key_step);
    if (!share_room<T>) load_block<T, Size>(tile, tile.place, work.call.v, tile.value, tile.value_step);
    wait_for_copies<share_room<T> ? 0 : 1>();
    __syncthreads();
    score_step<parts, Size>(work, tile, tile.key);
    __syncthreads();
    if (share_room<T>) load_block<T, Size>(tile, tile.place, work.call.v, tile.value, tile.value_step);
    weigh_step(work, tile, spans, step);
    wait_for_copies<0>();
    __syncthreads();
    add_step<parts, Size>(work, tile, tile.value, sums);
    __syncthreads();  // before the next block's keys come
    const Step following = steps.next();
    done(step, following);
    step = following;
  }
}

/// The same in a pipeline: the next step's keys and values are being copied, and those of the step after it
/// looked up.
template <class T, int Size, int Tiles, int Eights, class Done>
__device__ __forceinline__ void attend_pipelined(const Work& work, const Tile<Tiles>& tile, const Span* spans,
                                                 Steps& steps, Sums<Eights>& sums, const Done& done) {
  const auto place = [&](int number) { return tile.place + number % Tile<Tiles>::places * block_keys; };
  const auto keys = [&](int number) { return tile.key + number % 2 * tile.key_room; };
  const auto values = [&](int number) { return tile.value + number % 2 * tile.value_room; };
  const auto load = [&](const Step& step, int number) {
    if (step.exists()) {
      load_block<T, Size>(tile, place(number), work.call.k, keys(number), tile.key_step);
      load_block<T, Size>(tile, place(number), work.call.v, values(number), tile.value_step);
    } else {
      end_copy_group(), end_copy_group();
    }
  };
  Step step = steps.next(), following = steps.next();
  find_keys(work, spans, step, place(0));
  find_keys(work, spans, following, place(1));
  __syncthreads();
  load(step, 0);
  load_queries(work, tile);
  for (int number = 0; step.exists(); ++number) {
    load(following, number + 1);
    const Step later = steps.next();
    const Found found = find_key(work, spans, later);  // on its way while scores are made
    wait_for_copies<3>();  // the keys; beside them and its values wait two groups of the next step
    __syncthreads();
    score_step<1, Size>(work, tile, keys(number));
    if (later.exists()) keep_key(work, found, place(number + 2));
    __syncthreads();
    weigh_step(work, tile, spans, step);
    wait_for_copies<2>();
    __syncthreads();
    add_step<1, Size>(work, tile, values(number), sums);
    __syncthreads();  // before the room is filled again
    done(step, following);
    step = following;
    following = later;
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
