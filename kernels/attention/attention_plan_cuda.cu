#include "kernels/attention/attention_launch.h"
#include "kernels/gpu/device.cuh"

// Decides which blocks of threads work on which keys in tree_attention, once for all layers of a pass. A
// row's result does not depend on it.
namespace clover::kernels::cuda {
namespace {

constexpr int plan_warps = 8, plan_threads = plan_warps * warp_size;
/// Numbers of blocks an item may take: 16, 8, 4, 2, 1, or all of a path.
constexpr int choices = 6, all_of_path = 5;
CLOVER_HOST_DEVICE int item_blocks(int choice) {
  return choice == all_of_path ? whole_path_blocks : most_item_blocks >> choice;
}

/// The sizes that a plan is made for (PlanShape).
struct PlanSize {
  int64_t heads, most_items;
  bool fine, whole_paths;
  int split, tile_heads, places;  // tile_heads: query heads in a tile; places: for blocks of threads
};

CLOVER_HOST_DEVICE int items_of(const AttentionItem& tile, int choice, int split) {
  const int each = item_blocks(choice), chunks = (tile.blocks + each - 1) / each;
  return part_blocks(each, split) == 1 ? chunks + tile.apart : chunks;
}

/// The tile that begins at `row`; the spans of its rows are known.
__device__ inline AttentionItem tile_at(const AttentionCall& call, const Span* spans, int64_t row,
                                        int most_rows, int number) {
  AttentionItem tile{static_cast<int32_t>(row), 0, 0, 0, 0, number, 0x7fffffff, 1};
  for (int i = 0; i < most_rows && row + i < call.rows; ++i) {
    if (call.sequence[row + i] != call.sequence[row]) break;
    const Span span = spans[row + i];
    const int own = span.contiguous < span.length ? span.contiguous : span.length;
    const int blocks = blocks_of(span.length);
    tile.rows = i + 1;
    tile.common = own < tile.common ? own : tile.common;
    tile.blocks = blocks > tile.blocks ? blocks : tile.blocks;
    tile.apart += own_blocks(span);
  }
  if (tile.apart > most_apart) tile.apart = most_apart;
  return tile;
}

/// Fills plan.spans and plan.tiles; returns how many tiles there are.
__device__ inline int find_tiles(const AttentionCall& call, int rows_a_tile, const AttentionPlan& plan) {
  __shared__ unsigned begins[plan_warps], starts[plan_warps];
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const unsigned up_to_here = all_lanes >> (warp_size - 1 - lane);
  for (int64_t row = threadIdx.x; row < call.rows; row += plan_threads) plan.spans[row] = span_of(call, row);
  int64_t run = 0;  // where the present sequence's rows begin
  int tiles = 0;
  for (int64_t base = 0; base < call.rows; base += plan_threads) {
    const int64_t row = base + threadIdx.x;
    const bool exists = row < call.rows;
    const unsigned beginning =
        __ballot_sync(all_lanes, exists && (row == 0 || call.sequence[row] != call.sequence[row - 1]));
    if (lane == 0) begins[warp] = beginning;
    __syncthreads();  // and the spans are there
    int64_t own_run = run;
    for (int w = 0; w < plan_warps; ++w) {
      const unsigned before = w < warp ? begins[w] : w == warp ? begins[w] & up_to_here : 0;
      if (before != 0) own_run = base + w * warp_size + highest_bit(before);
      if (begins[w] != 0) run = base + w * warp_size + highest_bit(begins[w]);
    }
    const bool start = exists && (row - own_run) % rows_a_tile == 0;
    const unsigned starting = __ballot_sync(all_lanes, start);
    if (lane == 0) starts[warp] = starting;
    __syncthreads();
    int number = tiles + count_bits(starting & up_to_here) - 1;
    for (int w = 0; w < plan_warps; ++w) {
      if (w < warp) number += count_bits(starts[w]);
      tiles += count_bits(starts[w]);
    }
    if (start) plan.tiles[number] = tile_at(call, plan.spans, row, rows_a_tile, number);
  }
  return tiles;
}

/// The work that each choice of item size makes.
struct Choices {
  int items[choices], whole[choices];     // items, and those of as many blocks as they may have
  int blocks, longest, apart, most_rows;  // in all; of a tile, at most
};

/// The choice that is estimated to end first where `places` blocks of threads run at once. Starting an item
/// takes as long as a block of keys; a block that is left as a partial result takes a quarter longer, and a
/// warp reads eight partial results in half the time.
__device__ inline int choose(const Choices& all, const PlanSize& size) {
  int best = 0;
  int64_t least = 0;
#pragma unroll 1
  for (int choice = 0; choice < choices; ++choice) {
    const int each = item_blocks(choice);
    const bool alone = part_blocks(each, size.split) == 1;
    if (choice == all_of_path && !size.whole_paths) continue;
    if (choice > 0 && (all.items[choice] > size.most_items || (alone && !size.fine))) continue;
    const int64_t block = alone ? 5 : 4, begin = 4;
    const auto rounds = [&](int64_t time) { return (time * size.heads + size.places - 1) / size.places; };
    const int64_t whole = rounds(all.whole[choice]) * (each * block + begin);
    const int64_t even = rounds(all.blocks * block + all.items[choice] * begin);
    int64_t cost = (each < all.longest ? each : all.longest) * block + begin;
    cost = cost > whole ? cost : whole;
    cost = cost > even ? cost : even;
    const int a_partial = alone ? 1 : choice == all_of_path ? each : size.split;
    const int partials = (all.longest + a_partial - 1) / a_partial;
    if (partials > 1) cost += begin + partials * int64_t{all.most_rows} * size.tile_heads / 32;
    if (!alone) cost += all.apart * block;
    if (choice == 0 || cost < least) best = choice, least = cost;
  }
  return best;
}

/// The order of a plan's items: larger ones first, so that all blocks of threads end at about the same time,
/// and last those for keys that rows do not share.
struct Places {
  static constexpr int sizes = 64;
  int longest;          // blocks of a tile
  int next[sizes + 1];  // by size: how many there are, then the next one's place

  __device__ int& of(int blocks) { return next[blocks < longest ? blocks * sizes / longest : sizes]; }

  /// first(blocks, count): the place of the first of so many items.
  template <class First>
  __device__ void each(AttentionItem item, int choice, int split, const First& first) {
    const int most = item_blocks(choice), whole = item.blocks / most, left = item.blocks % most;
    item.chunks = whole + (left > 0 ? 1 : 0);
    item.apart = items_of(item, choice, split) - item.chunks;
    first(most, whole, 0, item);
    if (left > 0) first(left, 1, whole, item);
    if (item.apart > 0) first(0, item.apart, item.chunks, item);
  }
  __device__ void count(const AttentionItem& tile, int choice, int split) {
    each(tile, choice, split, [&](int blocks, int count, int, const AttentionItem&) {
      if (count > 0) atomicAdd(&of(blocks), count);
    });
  }
  __device__ void place(const AttentionItem& tile, int choice, int split, AttentionItem* items) {
    each(tile, choice, split, [&](int blocks, int count, int chunk, AttentionItem item) {
      const int first = count > 0 ? atomicAdd(&of(blocks), count) : 0;
      for (int i = 0; i < count; ++i) {
        item.chunk = chunk + i;
        items[first + i] = item;
      }
    });
  }
  __device__ void from_counts() {
    int before = 0;
    for (int size = sizes; size >= 0; --size) {
      const int own = next[size];
      next[size] = before;
      before += own;
    }
  }
};

__global__ void __launch_bounds__(plan_threads)
    plan_tiles(AttentionCall call, int rows_a_tile, PlanSize size, AttentionPlan plan) {
  launch_dependents();
  wait_for_prior_kernel();
  __shared__ Choices all;
  __shared__ Places places;
  __shared__ int chosen;
  if (threadIdx.x <= Places::sizes) places.next[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (int choice = 0; choice < choices; ++choice) all.items[choice] = all.whole[choice] = 0;
    all.blocks = all.longest = all.apart = all.most_rows = 0;
  }
  const int tiles = find_tiles(call, rows_a_tile, plan);
  __syncthreads();
  for (int i = threadIdx.x; i < tiles; i += plan_threads) {
    const AttentionItem tile = plan.tiles[i];
#pragma unroll 1
    for (int choice = 0; choice < choices; ++choice) {
      atomicAdd(&all.items[choice], items_of(tile, choice, size.split));
      atomicAdd(&all.whole[choice], tile.blocks / item_blocks(choice));
    }
    atomicAdd(&all.blocks, static_cast<int>(tile.blocks));
    atomicMax(&all.longest, static_cast<int>(tile.blocks));
    atomicMax(&all.apart, static_cast<int>(tile.apart));
    atomicMax(&all.most_rows, static_cast<int>(tile.rows));
  }
  for (int64_t i = threadIdx.x; i < tiles * size.heads; i += plan_threads) plan.arrived[i] = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    chosen = choose(all, size);
    places.longest = all.longest;
    plan.header[0] = all.items[chosen];
    plan.header[1] = item_blocks(chosen);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < tiles; i += plan_threads) places.count(plan.tiles[i], chosen, size.split);
  __syncthreads();
  if (threadIdx.x == 0) places.from_counts();
  __syncthreads();
  for (int i = threadIdx.x; i < tiles; i += plan_threads)
    places.place(plan.tiles[i], chosen, size.split, plan.items);
  // Blocks of threads without work read these, too.
  for (int64_t i = all.items[chosen] + threadIdx.x; i < size.most_items && i * size.heads < size.places;
       i += plan_threads)
    plan.items[i] = {};
}

}  // namespace

void launch_plan(const AttentionCall& call, int32_t* words, Stream stream) {
  const PlanShape shape(call, shared_bytes_a_block(), has_warpgroup_products());
  const TileShape tile(call, shape.queries);
  const PlanSize size{shape.heads,
                      shape.items,
                      shape.fine,
                      shape.groups > 1,
                      shape.split,
                      tile.heads_here,
                      shape.at_once() * multiprocessors()};
  launch("tree_attention", plan_tiles, dim3(1), plan_threads, 0, stream, call, tile.rows, size,
         AttentionPlan(shape, words));
}

}  // namespace clover::kernels::cuda
