#include "kernels/attention/attention_launch.h"
#include "kernels/attention/attention_merge.cuh"
#include "kernels/attention/attention_steps.cuh"

// Attention of the rows of a pass to their paths.  A tile of queries, successive rows of one sequence by the
// query heads of one kv head, takes keys in blocks of 64 absolute positions; four blocks fold into a part,
// and parts are added in order: what a row gets depends on its own path alone, whoever works on its keys (see
// attention_plan_cuda.cu).
namespace clover::kernels {
namespace cuda {
namespace {

/// Rows of a tile whose path reaches the part that begins at position `start`, a bit each.
__device__ inline unsigned rows_behind(const Span* spans, int rows, int start) {
  unsigned behind = 0;
  for (int row = 0; row < rows; ++row)
    if (spans[row].length > start) behind |= 1u << row;
  return behind;
}

/// An item of a plan for some of the query heads of a kv head, by one block of threads.
template <class T, int Tiles, int Pieces, int Size>
__device__ __forceinline__ void attend_item(const Work& work, const AttentionItem& item, const Span* spans,
                                            int item_blocks, const Partials& partials, unsigned* arrived) {
  const auto tile = Tile<Tiles>::template of<T, stages<T, Pieces>>(Size > 0 ? Size : work.call.head_size);
  const int blocks = part_blocks(item_blocks, split_blocks), part_keys = blocks * block_keys;
  const bool whole = item.chunks + item.apart == 1 && item.blocks <= blocks;
  Sums<Tiles * Pieces> sums;
  begin_result(tile, sums);
  Steps steps(item, spans, item_blocks);
  const auto done = [&](const Step& step, const Step& following) {
    const int part = step.start / part_keys;
    if (whole || (blocks > 1 && following.exists() && following.start / part_keys == part)) return;
    write_partial(work, tile, blocks > 1 ? rows_behind(spans, item.rows, part * part_keys) : step.members,
                  part, sums, partials);
    begin_result(tile, sums);  // what each thread sets here it alone has read
  };
  if constexpr (pipelined<T, Pieces>) {
    attend_pipelined<T, Size>(work, tile, spans, steps, sums, done);
  } else {
    attend_steps<T, Size>(work, tile, spans, steps, sums, done);
  }
  if (whole) return write_result(work, tile, sums);
  if (is_last_to_arrive(arrived, item.chunks + item.apart)) merge_tile(work, spans, blocks, partials);
}

/// Blocks of threads take items of the plan in turn, the query heads of the first before the next.
template <class T, int Tiles, int Pieces, int Size>
__global__ void __launch_bounds__(threads, blocks_a_multiprocessor)
    attend(AttentionCall call, AttentionPlan plan, int64_t parts, float* workspace) {
  launch_dependents();
  wait_for_prior_kernel();
  __shared__ Span spans[Tile<Tiles>::queries];
  const TileShape shape(call, Tile<Tiles>::queries);
  const int head_parts = shape.head_parts(), heads = static_cast<int>(call.kv_heads) * head_parts;
  AttentionItem item = plan.items[blockIdx.x / heads];  // maybe of no rows; read beside how many there are
  const int wanted = plan.header[0] * heads, item_blocks = plan.header[1];
  const Partials partials(call, parts, workspace);
  for (int number = blockIdx.x; number < wanted;) {
    const int in_item = number % heads, kv_head = in_item / head_parts;
    const int head = in_item % head_parts * shape.heads_here;
    if (static_cast<int>(threadIdx.x) < item.rows)
      spans[threadIdx.x] = plan.spans[item.first_row + threadIdx.x];
    const Work work{call,
                    call.page_table + call.sequence[item.first_row] * call.pages_per_sequence,
                    item.first_row,
                    kv_head,
                    int64_t{kv_head} * shape.heads + head,
                    item.rows,
                    shape.heads - head < shape.heads_here ? shape.heads - head : shape.heads_here};
    __syncthreads();
    attend_item<T, Tiles, Pieces, Size>(work, item, spans, item_blocks, partials,
                                        plan.arrived + item.tile * heads + in_item);
    __syncthreads();  // spans and shared memory are the next item's
    number += gridDim.x;
    if (number < wanted) item = plan.items[number / heads];
  }
}

template <class T, int Tiles, int Pieces, int Size>
void launch_attend(const AttentionCall& call, const PlanShape& shape, int32_t* plan, float* workspace,
                   Stream stream) {
  const int64_t places = int64_t{blocks_a_multiprocessor} * multiprocessors(),
                most = shape.items * shape.heads;
  const int64_t bytes = Tile<Tiles>::template bytes<T, stages<T, Pieces>>(call.head_size);
  constexpr int64_t declared = sizeof(Span) * Tile<Tiles>::queries + 16;
  if (bytes + declared > shared_bytes_a_block())
    launch_failed("tree_attention", "heads of this size take more shared memory than this GPU's blocks have");
  launch("tree_attention", attend<T, Tiles, Pieces, Size>, dim3(most < places ? most : places), threads,
         bytes, stream, call, AttentionPlan(shape, plan), shape.parts, workspace);
}

template <class T, int Pieces>
void launch_attend(const AttentionCall& call, const PlanShape& shape, int32_t* plan, float* workspace,
                   Stream stream) {
  constexpr int size = parts_of<T> == 1 && Pieces <= 2 ? 64 * Pieces : 0;
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
  return PlanShape(call, shared_bytes_a_block(), has_warpgroup_products());
}

/// In how many parts the rows of a call are taken, so that their partial results have room.
int64_t portions_of(const AttentionCall& call) {
  const int64_t parts =
      (shape_of(call).workspace() + most_attention_workspace - 1) / most_attention_workspace;
  return parts < 1 ? 1 : parts > call.rows ? call.rows : parts;
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
  const int64_t parts = cuda::portions_of(call);
  if (parts == 1) return cuda::attend_rows(call, context);
  // In even parts: a small one takes as long as its longest path does.
  const int64_t at_once = (call.rows + parts - 1) / parts;
  for (int64_t first = 0; first < call.rows; first += at_once) {
    const int64_t left = call.rows - first;
    cuda::attend_rows(cuda::rows_of(call, first, at_once < left ? at_once : left), context);
  }
}

void make_attention_plan(const AttentionCall& call, int32_t* plan, const GpuContext& context) {
  cuda::launch_plan(call, plan, context.stream);
}

int64_t attention_plan_words(const AttentionCall& call) {
  return cuda::portions_of(call) == 1 ? cuda::shape_of(call).words() : 0;
}

}  // namespace clover::kernels
