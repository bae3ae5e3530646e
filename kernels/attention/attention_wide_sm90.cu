#include "kernels/attention/attention_launch.h"
#include "kernels/attention/attention_wide_merge.cuh"

// Attention by wgmma and TMA (sm_90). A tile of queries, successive rows of one sequence by the query heads
// of one kv head, takes keys in blocks of 64 absolute positions; sixteen blocks fold into a part, and parts
// into the result: a row's result depends on its own path alone. One warp issues the copies of keys and
// values to a ring; mbarriers pass stages between it and the warps that multiply. Compiled for sm_90a alone.
// Tile sizes are in attention_wide.cuh (WideRoom) and attention_plan.h.
namespace clover::kernels::cuda {
namespace {

constexpr int all_groups = 3;  // number of their barrier; those from 1 on are a group's

/// The items of a block of threads, which producer and consumer warps go through alike.
struct WideItems {
  const AttentionCall& call;
  const AttentionPlan& plan;
  TileShape shape;
  int heads, wanted, item_blocks;
  AttentionItem first;  // of the block of threads, maybe of no rows; read beside how many there are
  /// The next item's number. Blocks take items in serpentine order, because long items stand before short
  /// ones.
  __device__ int behind(int number) const {
    const int blocks = gridDim.x, round = number / blocks, place = number - round * blocks;
    return (round + 1) * blocks + blocks - 1 - place;
  }
  __device__ WideItems(const AttentionCall& of, const AttentionPlan& with, int queries)
      : call(of), plan(with), shape(of, queries) {
    heads = static_cast<int>(call.kv_heads) * shape.head_parts();
    first = plan.items[blockIdx.x / heads];
    wanted = plan.header[0] * heads;
    item_blocks = plan.header[1];
  }
};

template <int Size, int Groups>
__device__ __forceinline__ void copy_items(const WideItems& items, const CacheMaps& maps,
                                           const WideRoom<Size, Groups>& room) {
  using Room = WideRoom<Size, Groups>;
  RingTurn<Room::stages> turn;
  const auto begin = [&](const StepCopies& copies, Barrier* empty, Barrier* full, unsigned char* to,
                         const RowMaps& from) {
    wait_for_phase(empty, turn.round - 1);
    if (threadIdx.x % warp_size == 0) arrive_and_expect(full, Room::block_bytes);
    __syncwarp();
    copies.copy<Room::halves>(to, from, full);
  };
#pragma unroll 1
  for (int number = blockIdx.x; number < items.wanted; number = items.behind(number)) {
    const AttentionItem item =
        number == static_cast<int>(blockIdx.x) ? items.first : items.plan.items[number / items.heads];
    const WideWork work(items.call, item, items.shape, number % items.heads);
    const Span* spans = items.plan.spans + item.first_row;
    KeySteps steps(item, spans, items.item_blocks);
#pragma unroll 1
    for (KeyStep step = steps.next(); step.exists; step = steps.next()) {
      const Span span = spans[step.leader];
      const StepCopies copies(items.call, work.pages, work.kv_head, span, step.start);
      begin(copies, room.keys_empty(turn.stage), room.keys_full(turn.stage), room.keys(turn.stage),
            maps.keys);
      begin(copies, room.values_empty(turn.stage), room.values_full(turn.stage), room.values(turn.stage),
            maps.values);
      turn.next();
    }
  }
}

/// Whether this is the last of `count` blocks of threads that work on a tile and leave partial results; only
/// the threads that multiply call it.  `arrived` is 0 before the first and after the last.
template <int Threads>
__device__ inline bool is_last_of_tile(unsigned* arrived, int count, int* last) {
  sync_threads<Threads>(all_groups);  // behind the partial results of all threads ..
  if (threadIdx.x == 0) {
    __threadfence();  // .. comes the word that they are there
    *last = atomicAdd(arrived, 1u) + 1 == static_cast<unsigned>(count);
    if (*last) *arrived = 0;
    __threadfence();  // the others' partial results, behind that word
  }
  sync_threads<Threads>(all_groups);
  return *last != 0;
}

template <class T, int Size, int Groups>
__device__ __forceinline__ void attend_items(const WideItems& items, const Partials& partials,
                                             const WideRoom<Size, Groups>& room) {
  const int group = threadIdx.x / group_threads, lane = threadIdx.x % warp_size;
  const int query = group * wide_group_queries + threadIdx.x % group_threads / warp_size * 16 + lane / 4;
  const int barrier = Groups == 1 ? 1 : 1 + group;
  constexpr bool folds_parts = Groups > 1;  // has the registers for it
  WideGroup<T, Size, Groups> own_group(room, items.call.rows < 0);
#pragma unroll 1
  for (int number = blockIdx.x; number < items.wanted; number = items.behind(number)) {
    const AttentionItem item =
        number == static_cast<int>(blockIdx.x) ? items.first : items.plan.items[number / items.heads];
    const WideWork work(items.call, item, items.shape, number % items.heads);
    const Span* spans = items.plan.spans + item.first_row;
    sync_threads<group_threads>(barrier);  // the queries of the item before have been read
    load_queries<T, Size>(work, group * wide_group_queries, room.queries(group));
    show_tensor_cores();
    sync_threads<group_threads>(barrier);
    const OwnQuery own[2] = {{work, spans, query}, {work, spans, query + 8}};
    const int blocks = part_blocks(items.item_blocks, wide_part_blocks);
    const bool whole = item.chunks + item.apart == 1 && (folds_parts || item.blocks <= blocks);
    const GroupRows rows(work, spans, Groups == 1 ? 0 : group * wide_group_queries);
    KeySteps steps(item, spans, items.item_blocks);
    WideSums<Size> all;
    all.clear();
    own_group.sums.clear();
#pragma unroll 1
    for (KeyStep step = steps.next(); step.exists;) {
      if (Groups == 1 || rows.sees(step)) {
        own_group.attend({own[0].count(step), own[1].count(step)});
      } else {
        own_group.pass();
      }
      const int part = step.start / (blocks * block_keys);
      step = steps.next();
      if (blocks > 1 && step.exists && step.start / (blocks * block_keys) == part) continue;
      if (!whole) {
        leave_partial(work, own, part, own_group.sums, partials);
      } else if (folds_parts) {
        add_part(all, own_group.sums);
      }
    }
    if (whole) {
      write_wide_result(work, own, folds_parts ? all : own_group.sums);
      continue;
    }
    unsigned* arrived = items.plan.arrived + item.tile * items.heads + number % items.heads;
    if (is_last_of_tile<Groups * group_threads>(arrived, item.chunks + item.apart, room.last()))
      merge_wide_tile<Size, Groups>(work, spans, blocks, partials);
  }
}

template <class T, int Size, int Groups>
__global__ void __launch_bounds__(WideRoom<Size, Groups>::threads,
                                  WideRoom<Size, Groups>::blocks_a_multiprocessor)
    attend_wide(AttentionCall call, AttentionPlan plan, int64_t parts, float* workspace,
                const __grid_constant__ CacheMaps maps) {
  launch_dependents();
  const WideRoom<Size, Groups> room;
  if (threadIdx.x == 0) room.init_barriers();
  __syncthreads();
  wait_for_prior_kernel();
  const WideItems items(call, plan, Groups * wide_group_queries);
  if (threadIdx.x >= Groups * group_threads) {
    give_registers<WideRoom<Size, Groups>::copying_registers>();
    if (threadIdx.x < Groups * group_threads + warp_size) copy_items(items, maps, room);
    return;
  }
  take_registers<WideRoom<Size, Groups>::multiplying_registers>();
  attend_items<T>(items, Partials(call, parts, workspace), room);
}

RowMaps maps_of(const AttentionCall& call, const void* first) {
  const auto in_boxes = [&](int rows) {
    return map_of_rows("tree_attention", first, call.pages * call.kv_heads * call.page_size, call.head_size,
                       call.head_size * 2, rows);
  };
  return {in_boxes(block_keys), in_boxes(8), in_boxes(1)};
}

template <class T, int Size, int Groups>
void launch_wide(const AttentionCall& call, const PlanShape& shape, int32_t* plan, float* workspace,
                 Stream stream) {
  using Room = WideRoom<Size, Groups>;
  const int64_t places = int64_t{Room::blocks_a_multiprocessor} * multiprocessors(),
                most = shape.items * shape.heads;
  launch("tree_attention", attend_wide<T, Size, Groups>, dim3(most < places ? most : places), Room::threads,
         Room::bytes, stream, call, AttentionPlan(shape, plan), shape.parts, workspace,
         CacheMaps{maps_of(call, call.k), maps_of(call, call.v)});
}

template <class T, int Size>
void launch_wide(const AttentionCall& call, const PlanShape& shape, int32_t* plan, float* workspace,
                 Stream stream) {
  if (shape.groups == 1) return launch_wide<T, Size, 1>(call, shape, plan, workspace, stream);
  launch_wide<T, Size, 2>(call, shape, plan, workspace, stream);
}

template <class T>
void launch_wide(const AttentionCall& call, const PlanShape& shape, int32_t* plan, float* workspace,
                 Stream stream) {
  if (call.head_size == 64) return launch_wide<T, 64>(call, shape, plan, workspace, stream);
  launch_wide<T, 128>(call, shape, plan, workspace, stream);
}

}  // namespace

void launch_wide_attention(const AttentionCall& call, const PlanShape& shape, int32_t* plan, float* workspace,
                           Stream stream) {
  if (call.cache == Element::bf16) return launch_wide<Bf16>(call, shape, plan, workspace, stream);
  launch_wide<Fp16>(call, shape, plan, workspace, stream);
}

}  // namespace clover::kernels::cuda
