#pragma once

#include "kernels/linear/linear_block.cuh"
#include "kernels/linear/linear_sums.cuh"

// Products of many rows by mma.sync: the kernel and its launch; linear_flat.cuh computes its sums.
namespace clover::kernels::cuda {
namespace {

/// A block's tile of outputs by rows, over all of k, or over segment blockIdx.z.
template <class Chunks>
__global__ void __launch_bounds__(Chunks::Shape::threads, Chunks::Shape::blocks_a_multiprocessor)
    linear_many(LinearCall call, SplitSums split) {
  using Shape = typename Chunks::Shape;
  constexpr int tiles = Shape::tiles_a_warp;
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
  const Corner corner = Corner::of<Shape>(lane, first_row, first_panel);
  if constexpr (Shape::split) {
    typename Shape::Sums sum = {};
    chunks.sum_to(static_cast<int>(cut.begin(last_segment)), sum);
    store_partial(call, corner, first_segment, sum, split);
    if (is_last_to_arrive(split.arrived + blockIdx.y * gridDim.x + blockIdx.x, KCut::segments))
      add_segments<Shape>(call, first_row, first_panel, split);
  } else {
    float4* totals = shared_memory<float4>() + threadIdx.x;  // a thread's own, of a tile each
    for (int segment = 0; segment < KCut::segments; ++segment) {
      typename Shape::Sums sum = {};
      chunks.sum_to(static_cast<int>(cut.begin(segment + 1)), sum);
#pragma unroll
      for (int i = 0; i < Shape::sums / 4; ++i) {
        float(&own)[4] = sum[i / tiles][i % tiles];
        const float4 before = segment == 0 ? float4{0, 0, 0, 0} : totals[i * Shape::threads];
        own[0] = before.x + own[0], own[1] = before.y + own[1];
        own[2] = before.z + own[2], own[3] = before.w + own[3];
      }
      if (segment + 1 == KCut::segments && call.epilogue == Epilogue::store && in_twos(call))
        return add_tile(call, corner, sum);
#pragma unroll
      for (int i = 0; i < Shape::sums / 4; ++i) {
        const float(&own)[4] = sum[i / tiles][i % tiles];
        totals[i * Shape::threads] = {own[0], own[1], own[2], own[3]};
      }
    }
    if (call.epilogue == Epilogue::best) return store_best<Shape>(call, corner, totals);
    store_pairs<Shape>(call, corner, totals);
  }
}

template <class Chunks>
void launch_blocks(const LinearCall& call, int64_t row_blocks, int64_t panel_blocks, const SplitSums& sums,
                   Stream stream) {
  using Shape = typename Chunks::Shape;
  if (panel_blocks == 0) return;
  launch("linear", linear_many<Chunks>, dim3(row_blocks, panel_blocks, Shape::split ? KCut::segments : 1),
         Shape::threads, Shape::bytes, stream, call, sums);
}

/// Launches the blocks that go through all of k, then those that share it.
template <class Whole, class Split>
void launch_whole_and_split(const LinearCall& call, const FlatPlan& plan, const SplitSums& sums,
                            Stream stream) {
  const int64_t row_blocks = plan.row_blocks(call), whole = plan.panel_blocks(call) - plan.split_blocks;
  launch_blocks<Whole>(call, row_blocks, whole, sums, stream);
  launch_blocks<Split>(call, row_blocks, plan.split_blocks, sums, stream);
}

}  // namespace
}  // namespace clover::kernels::cuda
