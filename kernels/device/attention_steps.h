#pragma once

#include "kernels/device/attention_tile.h"

// The blocks of keys that a tile takes one after the other, and what it does with each.
namespace clover::kernels::cuda {
namespace {

/// Whether the next block of keys and values is fetched while one is worked on: where there is room for two.
template <class T, int Pieces>
constexpr bool pipelined = !share_room<T> && Pieces <= 4;

/// A block of keys that rows of the tile take together: `members`, whose paths agree on it with that of
/// `leader`, the longest.
struct Step {
  int start = 0, leader = 0;
  unsigned members = 0;
  __device__ bool exists() const { return members != 0; }
};

/// The steps of one partial result, in order: for each block of positions the rows that share it, then each
/// row whose ancestors lie elsewhere alone.
class Steps {
 public:
  __device__ Steps(const Work& work, const Span* spans, int begin)
      : spans_(spans), rows_(work.rows), start_(begin - block_keys), left_(split_keys / block_keys) {}

  __device__ Step next() {
    while (own_ == 0) {
      if (left_-- <= 0) return {};
      start_ += block_keys;
      const Step shared = look();
      if (shared.exists()) return shared;
    }
    const unsigned lowest = own_ & (~own_ + 1);
    own_ ^= lowest;
    return {start_, highest_bit(lowest), lowest};
  }

 private:
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
  int rows_, start_, left_;
  unsigned own_ = 0;
};

__device__ inline void find_keys(const Work& work, const Span* spans, const Step& step, int64_t* place) {
  const int key = threadIdx.x;
  if (!step.exists() || key >= block_keys) return;
  const Span& span = spans[step.leader];
  const int position = step.start + key;
  if (key >= count_in_block(span, step.start)) {
    place[key] = -1;
    return;
  }
  const int slot = position < span.contiguous ? position : span.rest[position - span.contiguous];
  place[key] = cache_index(work.call, work.pages, slot, work.kv_head);
}

__device__ __forceinline__ void weigh_step(const Work& work, const Tile& tile, const Span* spans,
                                           const Step& step) {
  for (int query = threadIdx.x / warp_size; query < tile_queries; query += warps) {
    const int row = query / work.heads;
    const bool member = query < work.queries() && (step.members >> row & 1u) != 0;
    weigh_query(tile, query, member ? count_in_block(spans[row], step.start) : 0);
  }
}

/// One step after the other.
template <class T, int Pieces>
__device__ __forceinline__ void attend_steps(const Work& work, const Tile& tile, const Span* spans,
                                             Steps& steps, Sums<Pieces>& sums) {
  constexpr int parts = parts_of<T>;
  for (Step step = steps.next(); step.exists(); step = steps.next()) {
    find_keys(work, spans, step, tile.place);
    __syncthreads();
    load_block<T>(work.call, tile, tile.place, work.call.k, tile.key, tile.key_step);
    if (!share_room<T>) load_block<T>(work.call, tile, tile.place, work.call.v, tile.value, tile.value_step);
    wait_for_copies<share_room<T> ? 0 : 1>();
    __syncthreads();
    score_block<parts>(work.call, tile, tile.key);
    __syncthreads();
    if (share_room<T>) load_block<T>(work.call, tile, tile.place, work.call.v, tile.value, tile.value_step);
    weigh_step(work, tile, spans, step);
    wait_for_copies<0>();
    __syncthreads();
    add_block<parts>(tile, tile.value, sums);
    __syncthreads();  // before the next block's keys come
  }
}

/// The same, with the next step's keys and values on their way, and those of the one after it being found.
template <class T, int Pieces>
__device__ __forceinline__ void attend_pipelined(const Work& work, const Tile& tile, const Span* spans,
                                                 Steps& steps, Sums<Pieces>& sums) {
  const auto place = [&](int number) { return tile.place + number % Tile::places * block_keys; };
  const auto keys = [&](int number) { return tile.key + number % 2 * tile.key_room; };
  const auto values = [&](int number) { return tile.value + number % 2 * tile.value_room; };
  const auto load = [&](const Step& step, int number) {
    if (step.exists()) {
      load_block<T>(work.call, tile, place(number), work.call.k, keys(number), tile.key_step);
      load_block<T>(work.call, tile, place(number), work.call.v, values(number), tile.value_step);
    } else {
      end_copy_group(), end_copy_group();
    }
  };
  Step step = steps.next(), following = steps.next();
  find_keys(work, spans, step, place(0));
  find_keys(work, spans, following, place(1));
  __syncthreads();
  load(step, 0);
  for (int number = 0; step.exists(); ++number) {
    load(following, number + 1);
    const Step later = steps.next();
    find_keys(work, spans, later, place(number + 2));
    wait_for_copies<3>();  // the keys; beside them and its values wait two groups of the next step
    __syncthreads();
    score_block<1>(work.call, tile, keys(number));
    __syncthreads();
    weigh_step(work, tile, spans, step);
    wait_for_copies<2>();
    __syncthreads();
    add_block<1>(tile, values(number), sums);
    __syncthreads();  // before the room is filled again
    step = following;
    following = later;
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
