#include "kernels/attention/attention_launch.h"
#include "kernels/attention/attention_wide_merge.cuh"

// tree_attention with wgmma and TMA (sm_90), compiled for sm_90a alone. Thread blocks work on the items of a
// plan (attention_plan.h). A tile of queries takes keys in blocks of 64 absolute positions; sixteen blocks
// are merged into a part, and parts in order into the result, so that a row's result depends on its own path
// alone. One producer warp issues the copies of keys and values to a ring of stages; mbarriers pass stages
// between it and the consumer warpgroups. Tile sizes are in attention_wide.cuh (WideSharedMemory) and
// attention_plan.h.
namespace clover::kernels::cuda {
namespace {

// Number of the named barrier (sync_threads) of all consumer threads; warpgroup g has barrier 1 + g.
constexpr int all_groups_barrier = 3;

/// The items of a thread block, which producer and consumer warps go through in the same order.
struct WideItems {
  const AttentionCall& call;
  const AttentionPlan& plan;
  TileShape shape;
  int head_groups;      // PlanShape::head_groups
  int work_count;       // items * heads; work n is for head part n % heads of item n / heads
  int item_blocks;      // blocks of keys of an item
  AttentionItem first;  // the thread block's first item; has no rows if the plan has fewer items
  /// The number of the item after item `number`. Thread blocks take items in serpentine order, because the
  /// plan lists long items before short ones.
  __device__ int number_after(int number) const {
    const int blocks = gridDim.x, round = number / blocks, place = number - round * blocks;
    return (round + 1) * blocks + blocks - 1 - place;
  }
  __device__ WideItems(const AttentionCall& attention_call, const AttentionPlan& its_plan, int queries)
      : call(attention_call), plan(its_plan), shape(attention_call, queries) {
    head_groups = static_cast<int>(call.kv_heads) * shape.groups_per_kv_head();
    first = plan.items[blockIdx.x / head_groups];
    work_count = plan.header[0] * head_groups;
    item_blocks = plan.header[1];
  }
};

/// The producer warp: copies keys and values of all steps to the ring.
template <int Size, int Groups>
__device__ __forceinline__ void copy_items(const WideItems& items, const CacheMaps& maps,
                                           const WideSharedMemory<Size, Groups>& memory) {
  using Memory = WideSharedMemory<Size, Groups>;
  RingPosition<Memory::stages> position;
  const auto begin = [&](const StepCopies& copies, Barrier* empty, Barrier* full, unsigned char* to,
                         const RowMaps& from) {
    wait_for_phase(empty, position.round - 1);
    if (threadIdx.x % warp_size == 0) arrive_and_expect(full, Memory::block_bytes);
    __syncwarp();
    copies.copy<Memory::halves>(to, from, full);
  };
#pragma unroll 1
  for (int number = blockIdx.x; number < items.work_count; number = items.number_after(number)) {
    const AttentionItem item =
        number == static_cast<int>(blockIdx.x) ? items.first : items.plan.items[number / items.head_groups];
    const WideWork work(items.call, item, items.shape, number % items.head_groups);
    const Span* spans = items.plan.spans + item.first_row;
    KeySteps steps(item, spans, items.item_blocks);
#pragma unroll 1
    for (KeyStep step = steps.next(); step.exists; step = steps.next()) {
      const Span span = spans[step.leader];
      const StepCopies copies(items.call, work.pages, work.kv_head, span, step.start);
      begin(copies, memory.keys_empty(position.stage), memory.keys_full(position.stage),
            memory.keys(position.stage), maps.keys);
      begin(copies, memory.values_empty(position.stage), memory.values_full(position.stage),
            memory.values(position.stage), maps.values);
      position.next();
    }
  }
}

/// Whether this is the last of the `count` thread blocks that write partial results of a tile; all consumer
/// threads call it.  `arrived` is 0 before the first and after the last.
template <int Threads>
__device__ inline bool is_last_of_tile(unsigned* arrived, int count, int* last) {
  sync_threads<Threads>(all_groups_barrier);  // all threads have written their partial results
  if (threadIdx.x == 0) {
    __threadfence();  // these are visible before the count
    *last = atomicAdd(arrived, 1u) + 1 == static_cast<unsigned>(count);
    if (*last) *arrived = 0;
    __threadfence();  // partial results of other thread blocks are read after the count
  }
  sync_threads<Threads>(all_groups_barrier);
  return *last != 0;
}

/// The consumer warpgroups: compute all steps and write results.
template <class T, int Size, int Groups>
__device__ __forceinline__ void attend_items(const WideItems& items, const Partials& partials,
                                             const WideSharedMemory<Size, Groups>& memory) {
  const int group = threadIdx.x / group_threads, lane = threadIdx.x % warp_size;
  const int query = group * wide_group_queries + threadIdx.x % group_threads / warp_size * 16 + lane / 4;
  const int barrier = Groups == 1 ? 1 : 1 + group;
  constexpr bool folds_parts = Groups > 1;  // whether registers suffice for a part and a result
  WideGroup<T, Size, Groups> own_group(memory, items.call.rows < 0);
#pragma unroll 1
  for (int number = blockIdx.x; number < items.work_count; number = items.number_after(number)) {
    const AttentionItem item =
        number == static_cast<int>(blockIdx.x) ? items.first : items.plan.items[number / items.head_groups];
    const WideWork work(items.call, item, items.shape, number % items.head_groups);
    const Span* spans = items.plan.spans + item.first_row;
    sync_threads<group_threads>(barrier);  // the queries of the item before have been read
    load_queries<T, Size>(work, group * wide_group_queries, memory.queries(group));
    fence_async_proxy();
    sync_threads<group_threads>(barrier);
    const OwnQuery own[2] = {{work, spans, query}, {work, spans, query + 8}};
    const int blocks = part_blocks(items.item_blocks, wide_max_part_blocks);
    const bool writes_result =
        item.chunks + item.private_items == 1 && (folds_parts || item.blocks <= blocks);
    const GroupRows rows(work, spans, Groups == 1 ? 0 : group * wide_group_queries);
    KeySteps steps(item, spans, items.item_blocks);
    WideSums<Size> result;
    result.clear();
    own_group.sums.clear();
#pragma unroll 1
    for (KeyStep step = steps.next(); step.exists;) {
      if (Groups == 1 || rows.sees(step)) {
        own_group.attend({own[0].count(step), own[1].count(step)});
      } else {
        own_group.skip();
      }
      const int part = step.start / (blocks * block_keys);
      step = steps.next();
      if (blocks > 1 && step.exists && step.start / (blocks * block_keys) == part) continue;
      if (!writes_result) {
        write_wide_partial(work, own, part, own_group.sums, partials);
      } else if (folds_parts) {
        add_part(result, own_group.sums);
      }
    }
    if (writes_result) {
      write_wide_result(work, own, folds_parts ? result : own_group.sums);
      continue;
    }
    unsigned* arrived = items.plan.arrived + item.tile * items.head_groups + number % items.head_groups;
    if (is_last_of_tile<Groups * group_threads>(arrived, item.chunks + item.private_items, memory.last()))
      merge_wide_tile<Size, Groups>(work, spans, blocks, partials);
  }
}

template <class T, int Size, int Groups>
__global__ void __launch_bounds__(WideSharedMemory<Size, Groups>::threads,
                                  WideSharedMemory<Size, Groups>::thread_blocks_per_multiprocessor)
    attend_wide(AttentionCall call, AttentionPlan plan, int64_t parts, float* workspace,
                const __grid_constant__ CacheMaps maps) {
  launch_dependents();
  const WideSharedMemory<Size, Groups> memory;
  if (threadIdx.x == 0) memory.init_barriers();
  __syncthreads();
  wait_for_prior_kernel();
  const WideItems items(call, plan, Groups * wide_group_queries);
  if (threadIdx.x >= Groups * group_threads) {
    give_registers<WideSharedMemory<Size, Groups>::copying_registers>();
    if (threadIdx.x < Groups * group_threads + warp_size) copy_items(items, maps, memory);
    return;
  }
  take_registers<WideSharedMemory<Size, Groups>::multiplying_registers>();
  attend_items<T>(items, Partials(call, parts, workspace), memory);
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
  using Memory = WideSharedMemory<Size, Groups>;
  const int64_t concurrent_thread_blocks =
                    int64_t{Memory::thread_blocks_per_multiprocessor} * multiprocessors(),
                max_blocks = shape.items * shape.head_groups;
  launch("tree_attention", attend_wide<T, Size, Groups>,
         dim3(max_blocks < concurrent_thread_blocks ? max_blocks : concurrent_thread_blocks), Memory::threads,
         Memory::bytes, stream, call, AttentionPlan(shape, plan), shape.parts, workspace,
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
