#include "kernels/attention/attention_launch.h"
#include "kernels/gpu/device.cuh"

// Makes plans: which thread blocks work on which keys in tree_attention, once for all layers of a pass. The
// results of rows do not depend on the plan. attention_plan.h defines items, tiles, blocks and parts.
namespace clover::kernels::cuda {
namespace {

constexpr int plan_warps = 8, plan_threads = plan_warps * warp_size;
/// Choices of how many blocks of keys an item takes: 16, 8, 4, 2, 1, or the whole path.
constexpr int choices = 6, all_of_path = 5;
CLOVER_HOST_DEVICE int item_blocks(int choice) {
  return choice == all_of_path ? whole_path_blocks : max_item_blocks >> choice;
}

/// What plan_tiles needs of a PlanShape.
struct PlanSize {
  int64_t head_groups, max_items;
  bool single_block_partials;    // PlanShape::single_block_partials
  bool whole_paths;              // whether items may take whole paths
  int max_part_blocks;           // PlanShape::max_part_blocks
  int tile_heads;                // query heads in a tile
  int concurrent_thread_blocks;  // thread blocks that the GPU runs at once
};

/// How many items a tile has if they take item_blocks(choice) blocks of keys each.
CLOVER_HOST_DEVICE int items_of(const AttentionItem& tile, int choice, int max_part_blocks) {
  const int blocks_per_item = item_blocks(choice),
            chunks = (tile.blocks + blocks_per_item - 1) / blocks_per_item;
  return part_blocks(blocks_per_item, max_part_blocks) == 1 ? chunks + tile.private_items : chunks;
}

/// The tile number `number`, which begins at `row` and takes up to `max_rows` rows of its sequence.
/// spans [rows] of the call.
__device__ inline AttentionItem tile_at(const AttentionCall& call, const Span* spans, int64_t row,
                                        int max_rows, int number) {
  AttentionItem tile{static_cast<int32_t>(row), 0, 0, 0, 0, number, 0x7fffffff, 1};
  for (int i = 0; i < max_rows && row + i < call.rows; ++i) {
    if (call.sequence[row + i] != call.sequence[row]) break;
    const Span span = spans[row + i];
    const int contiguous = span.contiguous < span.length ? span.contiguous : span.length;
    const int blocks = blocks_of(span.length);
    tile.rows = i + 1;
    tile.shared_length = contiguous < tile.shared_length ? contiguous : tile.shared_length;
    tile.blocks = blocks > tile.blocks ? blocks : tile.blocks;
    tile.private_items += private_blocks(span);
  }
  if (tile.private_items > max_private_items) tile.private_items = max_private_items;
  return tile;
}

/// Fills plan.spans and plan.tiles; returns the number of tiles. All threads of the block call it.
__device__ inline int find_tiles(const AttentionCall& call, int rows_per_tile, const AttentionPlan& plan) {
  // By warp, a bit for each of its rows: whether a sequence, or a tile, begins at the row.
  __shared__ unsigned sequence_begins[plan_warps], tile_begins[plan_warps];
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const unsigned lanes_up_to_this = all_lanes >> (warp_size - 1 - lane);
  for (int64_t row = threadIdx.x; row < call.rows; row += plan_threads) plan.spans[row] = span_of(call, row);
  int64_t sequence_begin = 0;  // first row of the sequence that the last row so far belongs to
  int tiles = 0;
  for (int64_t base = 0; base < call.rows; base += plan_threads) {
    const int64_t row = base + threadIdx.x;
    const bool exists = row < call.rows;
    const unsigned begins_sequence =
        __ballot_sync(all_lanes, exists && (row == 0 || call.sequence[row] != call.sequence[row - 1]));
    if (lane == 0) sequence_begins[warp] = begins_sequence;
    __syncthreads();  // spans have been written, too
    int64_t own_sequence_begin = sequence_begin;
    for (int w = 0; w < plan_warps; ++w) {
      const unsigned before = w < warp    ? sequence_begins[w]
                              : w == warp ? sequence_begins[w] & lanes_up_to_this
                                          : 0;
      if (before != 0) own_sequence_begin = base + w * warp_size + highest_bit(before);
      if (sequence_begins[w] != 0) sequence_begin = base + w * warp_size + highest_bit(sequence_begins[w]);
    }
    const bool start = exists && (row - own_sequence_begin) % rows_per_tile == 0;
    const unsigned begins_tile = __ballot_sync(all_lanes, start);
    if (lane == 0) tile_begins[warp] = begins_tile;
    __syncthreads();
    int number = tiles + count_bits(begins_tile & lanes_up_to_this) - 1;
    for (int w = 0; w < plan_warps; ++w) {
      if (w < warp) number += count_bits(tile_begins[w]);
      tiles += count_bits(tile_begins[w]);
    }
    if (start) plan.tiles[number] = tile_at(call, plan.spans, row, rows_per_tile, number);
  }
  return tiles;
}

/// The work of a call, and how each choice of item size cuts it.
struct ChoiceWork {
  int items[choices];                    // all items
  int full[choices];                     // items with as many blocks of keys as they may have
  int blocks;                            // of keys, of all tiles
  int longest, private_items, max_rows;  // the most of a tile: blocks of keys, private items, rows
};

/// The choice with the shortest estimated time. The unit of time is a quarter of that for one block of keys.
/// An item takes 4 units to begin; a block of keys takes 4, or 5 if its partial result is written; and
/// merging 32 partial results of a query takes 1.
__device__ inline int choose(const ChoiceWork& work, const PlanSize& size) {
  int best = 0;
  int64_t min_cost = 0;
#pragma unroll 1
  for (int choice = 0; choice < choices; ++choice) {
    const int blocks_per_item = item_blocks(choice);
    const bool single_blocks = part_blocks(blocks_per_item, size.max_part_blocks) == 1;
    if (choice == all_of_path && !size.whole_paths) continue;
    if (choice > 0 && (work.items[choice] > size.max_items || (single_blocks && !size.single_block_partials)))
      continue;
    const int64_t block_time = single_blocks ? 5 : 4, begin_time = 4;
    // ceil(amount * head_groups / thread blocks that run at once)
    const auto rounds = [&](int64_t amount) {
      return (amount * size.head_groups + size.concurrent_thread_blocks - 1) / size.concurrent_thread_blocks;
    };
    // The time is the largest of: one item, all full items in rounds, all work if it is shared out evenly.
    const int64_t full = rounds(work.full[choice]) * (blocks_per_item * block_time + begin_time);
    const int64_t even = rounds(work.blocks * block_time + work.items[choice] * begin_time);
    int64_t cost =
        (blocks_per_item < work.longest ? blocks_per_item : work.longest) * block_time + begin_time;
    cost = cost > full ? cost : full;
    cost = cost > even ? cost : even;
    const int blocks_per_partial = single_blocks           ? 1
                                   : choice == all_of_path ? blocks_per_item
                                                           : size.max_part_blocks;
    const int partials = (work.longest + blocks_per_partial - 1) / blocks_per_partial;
    if (partials > 1) cost += begin_time + partials * int64_t{work.max_rows} * size.tile_heads / 32;
    if (!single_blocks) cost += work.private_items * block_time;
    if (choice == 0 || cost < min_cost) best = choice, min_cost = cost;
  }
  return best;
}

/// Sorts a plan's items by counting: items of more blocks of keys first, so that all thread blocks end at
/// about the same time, and private items last. First `count` is called for all tiles, then
/// `counts_to_indices`, then `place` for all tiles.
struct ItemOrder {
  static constexpr int sizes = 64;
  int longest;          // the most blocks of keys of a tile
  int next[sizes + 1];  // by size: the number of items, and after counts_to_indices the index of the next one

  __device__ int& of(int blocks) { return next[blocks < longest ? blocks * sizes / longest : sizes]; }

  /// Calls body(blocks of keys, how many items, chunk of the first one, item) for each size of a tile's
  /// items; private items count as 0 blocks.
  template <class Body>
  __device__ void for_each_size(AttentionItem item, int choice, int max_part_blocks, const Body& body) {
    const int item_size = item_blocks(choice), full_items = item.blocks / item_size,
              left = item.blocks % item_size;
    item.chunks = full_items + (left > 0 ? 1 : 0);
    item.private_items = items_of(item, choice, max_part_blocks) - item.chunks;
    body(item_size, full_items, 0, item);
    if (left > 0) body(left, 1, full_items, item);
    if (item.private_items > 0) body(0, item.private_items, item.chunks, item);
  }
  __device__ void count(const AttentionItem& tile, int choice, int max_part_blocks) {
    for_each_size(tile, choice, max_part_blocks, [&](int blocks, int count, int, const AttentionItem&) {
      if (count > 0) atomicAdd(&of(blocks), count);
    });
  }
  __device__ void place(const AttentionItem& tile, int choice, int max_part_blocks, AttentionItem* items) {
    for_each_size(tile, choice, max_part_blocks, [&](int blocks, int count, int chunk, AttentionItem item) {
      const int first = count > 0 ? atomicAdd(&of(blocks), count) : 0;
      for (int i = 0; i < count; ++i) {
        item.chunk = chunk + i;
        items[first + i] = item;
      }
    });
  }
  __device__ void counts_to_indices() {
    int before = 0;
    for (int size = sizes; size >= 0; --size) {
      const int item_count = next[size];
      next[size] = before;
      before += item_count;
    }
  }
};

/// Makes the plan of a call, in one thread block.
__global__ void __launch_bounds__(plan_threads)
    plan_tiles(AttentionCall call, int rows_per_tile, PlanSize size, AttentionPlan plan) {
  launch_dependents();
  wait_for_prior_kernel();
  __shared__ ChoiceWork work;
  __shared__ ItemOrder item_order;
  __shared__ int chosen;
  if (threadIdx.x <= ItemOrder::sizes) item_order.next[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (int choice = 0; choice < choices; ++choice) work.items[choice] = work.full[choice] = 0;
    work.blocks = work.longest = work.private_items = work.max_rows = 0;
  }
  const int tiles = find_tiles(call, rows_per_tile, plan);
  __syncthreads();
  for (int i = threadIdx.x; i < tiles; i += plan_threads) {
    const AttentionItem tile = plan.tiles[i];
#pragma unroll 1
    for (int choice = 0; choice < choices; ++choice) {
      atomicAdd(&work.items[choice], items_of(tile, choice, size.max_part_blocks));
      atomicAdd(&work.full[choice], tile.blocks / item_blocks(choice));
    }
    atomicAdd(&work.blocks, static_cast<int>(tile.blocks));
    atomicMax(&work.longest, static_cast<int>(tile.blocks));
    atomicMax(&work.private_items, static_cast<int>(tile.private_items));
    atomicMax(&work.max_rows, static_cast<int>(tile.rows));
  }
  for (int64_t i = threadIdx.x; i < tiles * size.head_groups; i += plan_threads) plan.arrived[i] = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    chosen = choose(work, size);
    item_order.longest = work.longest;
    plan.header[0] = work.items[chosen];
    plan.header[1] = item_blocks(chosen);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < tiles; i += plan_threads)
    item_order.count(plan.tiles[i], chosen, size.max_part_blocks);
  __syncthreads();
  if (threadIdx.x == 0) item_order.counts_to_indices();
  __syncthreads();
  for (int i = threadIdx.x; i < tiles; i += plan_threads)
    item_order.place(plan.tiles[i], chosen, size.max_part_blocks, plan.items);
  // Thread blocks without work read an item, too.
  for (int64_t i = work.items[chosen] + threadIdx.x;
       i < size.max_items && i * size.head_groups < size.concurrent_thread_blocks; i += plan_threads)
    plan.items[i] = {};
}

}  // namespace

void launch_plan(const AttentionCall& call, int32_t* words, Stream stream) {
  const PlanShape shape(call, shared_bytes_per_block(), has_warpgroup_products());
  const TileShape tile(call, shape.queries);
  const PlanSize size{shape.head_groups,
                      shape.items,
                      shape.single_block_partials,
                      shape.groups > 1,
                      shape.max_part_blocks,
                      tile.heads_per_tile,
                      shape.concurrent_thread_blocks() * multiprocessors()};
  launch("tree_attention", plan_tiles, dim3(1), plan_threads, 0, stream, call, tile.rows, size,
         AttentionPlan(shape, words));
}

}  // namespace clover::kernels::cuda
