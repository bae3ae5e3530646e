#pragma once

#include "kernels/linear/linear_block.cuh"
#include "kernels/linear/linear_sums.cuh"

// Kernel `flat`: the kernel and its launch. linear_flat.cuh computes the sums, linear_sums.cuh stores them;
// linear_block.cuh explains block tile, panel, tile and segment.
namespace clover::kernels::cuda {
namespace {

/// Computes a block tile, over all of k or (Shape::split) over segment blockIdx.z. `Chunks`: FlatChunks;
/// `End`: the call's epilogue.
template <class Chunks, Epilogue End>
__global__ void __launch_bounds__(Chunks::Shape::threads, Chunks::Shape::blocks_per_multiprocessor)
    linear_many(LinearCall call, SplitSums split) {
  call.epilogue = End;  // a constant, so that the compiler removes the code of other epilogues
  using Shape = typename Chunks::Shape;
  constexpr int tiles = Shape::tiles_per_warp;
  const Lane lane;
  const KCut cut(call.inputs);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * Shape::rows;
  const int64_t first_panel = static_cast<int64_t>(blockIdx.y) * Shape::panels +
                              (Shape::split ? split.first_output / panel_outputs : 0);
  const int first_segment = Shape::split ? blockIdx.z : 0,
            last_segment = Shape::split ? blockIdx.z + 1 : KCut::segments;
  launch_dependents();
  Chunks chunks(call, cut, lane, static_cast<int>(cut.begin(first_segment)),
                static_cast<int>(cut.begin(last_segment)), first_row, first_panel);
  const auto corner = [&] { return Corner::of<Shape>(lane, first_row, first_panel); };
  if constexpr (Shape::split) {
    typename Shape::Sums sum = {};
    chunks.sum_to(static_cast<int>(cut.begin(last_segment)), sum);
    store_partial(call, corner(), first_segment, sum, split);
    if (is_last_to_arrive(split.arrived + blockIdx.y * gridDim.x + blockIdx.x, KCut::segments))
      add_segments<Shape>(call, first_row, first_panel, split);
  } else {
    // The thread's sums of the segments so far: element i * Shape::threads is that of panel i / tiles and
    // tile i % tiles.
    float4* totals = shared_memory<float4>() + threadIdx.x;
    for (int segment = 0; segment < KCut::segments; ++segment) {
      typename Shape::Sums sum = {};
      chunks.sum_to(static_cast<int>(cut.begin(segment + 1)), sum);
#pragma unroll
      for (int i = 0; i < Shape::sums / 4; ++i) {
        float(&four)[4] = sum[i / tiles][i % tiles];
        const float4 before = segment == 0 ? float4{0, 0, 0, 0} : totals[i * Shape::threads];
        four[0] = before.x + four[0], four[1] = before.y + four[1];
        four[2] = before.z + four[2], four[3] = before.w + four[3];
      }
      if (segment + 1 == KCut::segments && End == Epilogue::store && in_aligned_pairs(call))
        return add_tile(call, corner(), sum);
#pragma unroll
      for (int i = 0; i < Shape::sums / 4; ++i) {
        const float(&four)[4] = sum[i / tiles][i % tiles];
        totals[i * Shape::threads] = {four[0], four[1], four[2], four[3]};
      }
    }
    // Else what the epilogue computes from these would be computed before the loops, which need the
    // registers.
    keep_in_register(call.outputs), keep_in_register(call.rows);
    if (End == Epilogue::arg_max) return store_arg_max<Shape>(call, corner(), totals);
    store_pairs<Shape>(call, corner(), totals);
  }
}

template <class Chunks, Epilogue End>
void launch_blocks(const LinearCall& call, int64_t row_blocks, int64_t panel_blocks, const SplitSums& sums,
                   Stream stream) {
  using Shape = typename Chunks::Shape;
  if (panel_blocks == 0) return;
  launch("linear", linear_many<Chunks, End>,
         dim3(row_blocks, panel_blocks, Shape::split ? KCut::segments : 1), Shape::threads, Shape::bytes,
         stream, call, sums);
}

/// Launches the thread blocks that go through all of k, then those with one segment each.
template <class Whole, class Split, Epilogue End>
void launch_whole_and_split(const LinearCall& call, const FlatPlan& plan, const SplitSums& sums,
                            Stream stream) {
  const int64_t row_blocks = plan.row_blocks(call), whole = plan.panel_blocks(call) - plan.split_blocks;
  launch_blocks<Whole, End>(call, row_blocks, whole, sums, stream);
  launch_blocks<Split, End>(call, row_blocks, plan.split_blocks, sums, stream);
}

}  // namespace
}  // namespace clover::kernels::cuda
