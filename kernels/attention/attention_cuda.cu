#include "kernels/attention/attention_launch.h"
#include "kernels/attention/attention_merge.cuh"
#include "kernels/attention/attention_steps.cuh"

// tree_attention on GPUs without wgmma, and on sm_90 for shapes that its own kernel does not take. Thread
// blocks work on the items of a plan (attention_plan.h). A tile of queries takes keys in blocks of 64
// absolute positions; four blocks are merged into a part, and parts in order into the result, so that a row's
// result depends on its own path alone.
namespace clover::kernels {
namespace cuda {
namespace {

/// Rows of a tile whose path has positions from `start` on, a bit each.
__device__ inline unsigned rows_beyond(const Span* spans, int rows, int start) {
  unsigned beyond = 0;
  for (int row = 0; row < rows; ++row)
    if (spans[row].length > start) beyond |= 1u << row;
  return beyond;
}

/// Computes an item of a plan for the query heads of `work`, by one thread block.
template <class T, int Tiles, int Pieces, int Size>
__device__ __forceinline__ void attend_item(const Work& work, const AttentionItem& item, const Span* spans,
                                            int item_blocks, const Partials& partials, unsigned* arrived) {
  const auto tile = Tile<Tiles>::template of<T, stages<T, Pieces>>(Size > 0 ? Size : work.call.head_size);
  const int blocks = part_blocks(item_blocks, max_part_blocks), part_keys = blocks * block_keys;
  const bool writes_result = item.chunks + item.private_items == 1 && item.blocks <= blocks;
  Sums<Tiles * Pieces> sums;
  begin_result(tile, sums);
  Steps steps(item, spans, item_blocks);
  const auto after_step = [&](const Step& step, const Step& following) {
    const int part = step.start / part_keys;
    if (writes_result || (blocks > 1 && following.exists() && following.start / part_keys == part)) return;
    write_partial(work, tile, blocks > 1 ? rows_beyond(spans, item.rows, part * part_keys) : step.members,
                  part, sums, partials);
    begin_result(tile, sums);  // needs no barrier: each thread resets only what it alone has read
  };
  if constexpr (pipelined<T, Pieces>) {
    attend_pipelined<T, Size>(work, tile, spans, steps, sums, after_step);
  } else {
    attend_steps<T, Size>(work, tile, spans, steps, sums, after_step);
  }
  if (writes_result) return write_result(work, tile, sums);
  if (is_last_to_arrive(arrived, item.chunks + item.private_items)) merge_tile(work, spans, blocks, partials);
}

/// Thread blocks take the items of the plan in turn, all query heads of an item before the next item.
/// `Tiles`: tiles of 16 queries; `Pieces`: head size / 64, rounded up; `Size`: the head size if it is a
/// constant, else 0.
template <class T, int Tiles, int Pieces, int Size>
__global__ void __launch_bounds__(threads, thread_blocks_per_multiprocessor)
    attend(AttentionCall call, AttentionPlan plan, int64_t parts, float* workspace) {
  launch_dependents();
  wait_for_prior_kernel();
  __shared__ Span spans[Tile<Tiles>::queries];
  const TileShape shape(call, Tile<Tiles>::queries);
  const int groups_per_kv_head = shape.groups_per_kv_head(),
            head_groups = static_cast<int>(call.kv_heads) * groups_per_kv_head;
  AttentionItem item = plan.items[blockIdx.x / head_groups];  // has no rows if the plan has fewer items
  const int work_count = plan.header[0] * head_groups, item_blocks = plan.header[1];
  const Partials partials(call, parts, workspace);
  for (int number = blockIdx.x; number < work_count;) {
    const int head_group = number % head_groups, kv_head = head_group / groups_per_kv_head;
    const int head = head_group % groups_per_kv_head * shape.heads_per_tile;
    if (static_cast<int>(threadIdx.x) < item.rows)
      spans[threadIdx.x] = plan.spans[item.first_row + threadIdx.x];
    const Work work{call,
                    call.page_table + call.sequence[item.first_row] * call.pages_per_sequence,
                    item.first_row,
                    kv_head,
                    int64_t{kv_head} * shape.heads + head,
                    item.rows,
                    shape.heads - head < shape.heads_per_tile ? shape.heads - head : shape.heads_per_tile};
    __syncthreads();
    attend_item<T, Tiles, Pieces, Size>(work, item, spans, item_blocks, partials,
                                        plan.arrived + item.tile * head_groups + head_group);
    __syncthreads();  // spans and shared memory are the next item's
    number += gridDim.x;
    if (number < work_count) item = plan.items[number / head_groups];
  }
}

template <class T, int Tiles, int Pieces, int Size>
void launch_attend(const AttentionCall& call, const PlanShape& shape, int32_t* plan, float* workspace,
                   Stream stream) {
  const int64_t concurrent_thread_blocks = int64_t{thread_blocks_per_multiprocessor} * multiprocessors(),
                max_blocks = shape.items * shape.head_groups;
  const int64_t bytes = Tile<Tiles>::template bytes<T, stages<T, Pieces>>(call.head_size);
  constexpr int64_t declared = sizeof(Span) * Tile<Tiles>::queries + 16;
  if (bytes + declared > shared_bytes_per_block())
    launch_failed("tree_attention", "heads of this size take more shared memory than this GPU's blocks have");
  launch("tree_attention", attend<T, Tiles, Pieces, Size>,
         dim3(max_blocks < concurrent_thread_blocks ? max_blocks : concurrent_thread_blocks), threads, bytes,
         stream, call, AttentionPlan(shape, plan), shape.parts, workspace);
}

template <class T, int Pieces>
void launch_attend(const AttentionCall& call, const PlanShape& shape, int32_t* plan, float* workspace,
                   Stream stream) {
  constexpr int size = bf16_parts<T> == 1 && Pieces <= 2 ? 64 * Pieces : 0;
  if (size == 0 || call.head_size != size)
    return launch_attend<T, 1, Pieces, 0>(call, shape, plan, workspace, stream);
  if (shape.queries == tensor_queries)
    return launch_attend<T, 1, Pieces, size>(call, shape, plan, workspace, stream);
  launch_attend<T, size == 0 ? 1 : 2, Pieces, size>(call, shape, plan, workspace, stream);
}

template <class T>
void launch_attend(const AttentionCall& call, const PlanShape& shape, int32_t* plan, float* workspace,
                   Stream stream) {
  if (call.head_size <= 64) return launch_attend<T, 1>(call, shape, plan, workspace, stream);
  if (call.head_size <= 128) return launch_attend<T, 2>(call, shape, plan, workspace, stream);
  launch_attend<T, 4>(call, shape, plan, workspace, stream);
}

PlanShape shape_of(const AttentionCall& call) {
  return PlanShape(call, shared_bytes_per_block(), has_warpgroup_products());
}

/// In how many portions the rows of a call are taken, so that the partial results of each fit in the
/// workspace.
int64_t portions_of(const AttentionCall& call) {
  const int64_t portions =
      (shape_of(call).workspace() + max_attention_workspace - 1) / max_attention_workspace;
  return portions < 1 ? 1 : portions > call.rows ? call.rows : portions;
}

void attend_rows(const AttentionCall& call, const GpuContext& context) {
  const PlanShape shape = shape_of(call);
  std::shared_ptr<int32_t> own_plan;
  int32_t* plan = call.plan;
  if (plan == nullptr) {
    own_plan = context.scratch<int32_t>(shape.words());
    plan = own_plan.get();
    launch_plan(call, plan, context.stream);
  }
  const auto workspace = context.scratch<float>(shape.workspace());
  if (shape.groups > 0) return launch_wide_attention(call, shape, plan, workspace.get(), context.stream);
  with_element(call.cache, [&](auto zero) {
    launch_attend<decltype(zero)>(call, shape, plan, workspace.get(), context.stream);
  });
}

}  // namespace
}  // namespace cuda

void run_on_gpu(const AttentionCall& call, const GpuContext& context) {
  const int64_t portions = cuda::portions_of(call);
  if (portions == 1) return cuda::attend_rows(call, context);
  // Portions of equal size, because a small one takes as long as its longest path.
  const int64_t portion_rows = (call.rows + portions - 1) / portions;
  for (int64_t first = 0; first < call.rows; first += portion_rows) {
    const int64_t remaining = call.rows - first;
    cuda::attend_rows(cuda::rows_of(call, first, portion_rows < remaining ? portion_rows : remaining),
                      context);
  }
}

void make_attention_plan(const AttentionCall& call, int32_t* plan, const GpuContext& context) {
  cuda::launch_plan(call, plan, context.stream);
}

int64_t attention_plan_words(const AttentionCall& call) {
  return cuda::portions_of(call) == 1 ? cuda::shape_of(call).words() : 0;
}

}  // namespace clover::kernels
