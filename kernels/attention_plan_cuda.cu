#include "kernels/device/attention_plan.h"
#include "kernels/device/cuda.h"
#include "kernels/device/launchers.h"

// Who works on which keys in tree_attention, found once for all layers of a pass.  What a row gets does not
// depend on it.
namespace clover::kernels::cuda {
namespace {

constexpr int plan_warps = 8, plan_threads = plan_warps * warp_size;
/// Numbers of blocks an item may take: 16, 8, 4, 2 or 1.
constexpr int choices = 5;
CLOVER_BOTH int item_blocks(int choice) {
  return most_item_blocks >> choice;
}

CLOVER_BOTH int items_of(const AttentionItem& tile, int choice) {
  const int each = item_blocks(choice), chunks = (tile.blocks + each - 1) / each;
  return part_blocks(each) == 1 ? chunks + tile.apart : chunks;
}

/// The tile that begins at `row`, whose rows' spans are there.
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

/// Fills plan.spans and plan.tiles; how many tiles there are.
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

/// The choice that ends first where `places` blocks of threads run at once, each of which takes as long to
/// begin as for a block of keys.
__device__ inline int choose(const int (&items)[choices], int longest, int apart, int64_t heads,
                             int64_t most_items, bool fine, int places) {
  int best = 0;
  int64_t least = 0;
  for (int choice = 0; choice < choices; ++choice) {
    const int each = item_blocks(choice);
    const bool alone = part_blocks(each) == 1;
    if (choice > 0 && (items[choice] > most_items || (alone && !fine))) continue;
    const int64_t rounds = (items[choice] * heads + places - 1) / places;
    const int64_t cost = rounds * (1 + (each < longest ? each : longest)) + (alone ? 0 : apart);
    if (choice == 0 || cost < least) best = choice, least = cost;
  }
  return best;
}

__global__ void __launch_bounds__(plan_threads)
    plan_tiles(AttentionCall call, int rows_a_tile, int64_t heads, int64_t most_items, bool fine, int places,
               AttentionPlan plan) {
  let_next_begin();
  wait_for_last();
  __shared__ int items[choices], longest, apart, next, chosen;
  if (threadIdx.x == 0) {
    for (int choice = 0; choice < choices; ++choice) items[choice] = 0;
    longest = apart = next = 0;
  }
  const int tiles = find_tiles(call, rows_a_tile, plan);
  __syncthreads();
  for (int i = threadIdx.x; i < tiles; i += plan_threads) {
    const AttentionItem tile = plan.tiles[i];
    for (int choice = 0; choice < choices; ++choice) atomicAdd(&items[choice], items_of(tile, choice));
    atomicMax(&longest, tile.blocks);
    atomicMax(&apart, tile.apart);
  }
  for (int64_t i = threadIdx.x; i < tiles * heads; i += plan_threads) plan.arrived[i] = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    chosen = choose(items, longest, apart, heads, most_items, fine, places);
    plan.header[0] = items[chosen];
    plan.header[1] = item_blocks(chosen);
  }
  __syncthreads();
  const int choice = chosen, each = item_blocks(choice);
  for (int i = threadIdx.x; i < tiles; i += plan_threads) {
    AttentionItem item = plan.tiles[i];
    const int count = items_of(item, choice), at = atomicAdd(&next, count);
    item.chunks = (item.blocks + each - 1) / each;
    item.apart = count - item.chunks;
    for (item.chunk = 0; item.chunk < count; ++item.chunk) plan.items[at + item.chunk] = item;
  }
  // What blocks of threads without work read, too.
  for (int64_t i = items[choice] + threadIdx.x; i < most_items && i * heads < places; i += plan_threads)
    plan.items[i] = {};
}

}  // namespace

void launch_plan_attention(const AttentionCall& call, int32_t* words, Stream stream) {
  const PlanShape shape(call, shared_bytes_a_block());
  launch("tree_attention", plan_tiles, dim3(1), plan_threads, 0, stream, call,
         TileShape(call, shape.queries).rows, shape.heads, shape.items, shape.fine,
         blocks_a_multiprocessor * multiprocessors(), AttentionPlan(shape, words));
}

int64_t attention_plan_words(const AttentionCall& call) {
  return PlanShape(call, shared_bytes_a_block()).words();
}

}  // namespace clover::kernels::cuda
