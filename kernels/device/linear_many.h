#pragma once

#include "kernels/device/linear_chunks.h"

// Many rows: a block's tile, and what becomes of its sums.
namespace clover::kernels::cuda {
namespace {

/// Where a thread's sums of a block's tile belong.
struct Corner {
  int64_t row, output;  // of sum[0][0][0]

  template <class Shape, int PanelsAWarp, int TilesAWarp>
  __device__ static Corner of(const Lane& lane, int64_t first_row, int64_t first_panel) {
    return {first_row + lane.warp / Shape::over_outputs * TilesAWarp * 8 + 2 * lane.in_group,
            (first_panel + lane.warp % Shape::over_outputs * PanelsAWarp) * panel_outputs + 2 * lane.group};
  }
  __device__ int64_t row_of(int tile, int i) const { return row + tile * 8 + i % 2; }
  __device__ int64_t output_of(int panel, int i) const { return output + panel * panel_outputs + i / 2; }
};

/// Sums of two tiles at a time are added to what is there, all of it read before the first is written: one by
/// one they would wait for each other.
template <int PanelsAWarp, int TilesAWarp>
__device__ __forceinline__ void add_tile(const LinearCall& call, const Corner& corner,
                                         const float (&sum)[PanelsAWarp][TilesAWarp][4]) {
  constexpr int own_outputs = 2 * PanelsAWarp, own_rows = 4;  // of two tiles
  const bool accumulate = call.accumulate, adds = accumulate || call.bias != nullptr;
  const int rows_left = static_cast<int>(call.rows - corner.row);
  const int64_t outputs_left = call.outputs - corner.output;
  const auto output_of = [](int i) { return i / 2 * panel_outputs + i % 2; };
  const auto row_of = [](int r) { return r / 2 * 8 + r % 2; };
  float* own = call.y + corner.row * call.outputs + corner.output;
  float bias[own_outputs] = {};
#pragma unroll
  for (int i = 0; i < own_outputs; ++i)
    if (call.bias != nullptr && output_of(i) < outputs_left)
      bias[i] = call.bias[corner.output + output_of(i)];
#pragma unroll
  for (int tile = 0; tile < TilesAWarp; tile += 2) {
    float start[own_rows][own_outputs];
    const auto each = [&](const auto& action) {
#pragma unroll
      for (int r = 0; r < own_rows; ++r) {
        float* row = own + row_of(r) * call.outputs;
#pragma unroll
        for (int i = 0; i < own_outputs; ++i)
          if (tile * 8 + row_of(r) < rows_left && output_of(i) < outputs_left)
            action(row[output_of(i)], start[r][i], bias[i], sum[i / 2][tile + r / 2][r % 2 + i % 2 * 2]);
      }
    };
    if (accumulate) each([](const float& y, float& from, float, float) { from = y; });
    each([&](float& y, float from, float of_bias, float mine) {
      y = adds ? (accumulate ? from : of_bias) + mine : mine;
    });
    own += 16 * call.outputs;
  }
}

/// The other epilogues, out of the thread's own `totals`: not as many times in the program as there are sums.
template <class Shape, int TilesAWarp>
__device__ __forceinline__ void store_pairs(const LinearCall& call, const Corner& corner,
                                            const float* totals) {
#pragma unroll 4
  for (int i = 0; i < Shape::sums / 2; ++i) {
    const int panel = i / 2 / TilesAWarp, tile = i / 2 % TilesAWarp, odd = i % 2;
    const float* two = totals + (i / 2 * 4 + odd) * Shape::threads;
    store_pair(call, corner.row_of(tile, odd), corner.output_of(panel, 0), two[0], two[2 * Shape::threads]);
  }
}

template <int PanelsAWarp, int TilesAWarp>
__device__ __forceinline__ void store_partial(const LinearCall& call, const Corner& corner, int segment,
                                              const float (&sum)[PanelsAWarp][TilesAWarp][4],
                                              const SplitSums& split) {
  float* own = split.of(segment) + corner.row * split.outputs + corner.output;
#pragma unroll
  for (int i = 0; i < PanelsAWarp * TilesAWarp * 2; ++i) {
    const int panel = i / 2 / TilesAWarp, tile = i / 2 % TilesAWarp, odd = i % 2;
    if (corner.row_of(tile, odd) >= call.rows) continue;  // outputs have room to the end of the block
    *reinterpret_cast<float2*>(own + (tile * 8 + odd) * split.outputs + panel * panel_outputs) =
        float2{sum[panel][tile][odd], sum[panel][tile][odd + 2]};
  }
}

/// Adds up, in order, what the blocks of a tile have left: of several pairs of outputs all that is to be read
/// first.
template <class Shape>
__device__ inline void add_segments(const LinearCall& call, int64_t first_row, int64_t first_panel,
                                    const SplitSums& split) {
  constexpr int pairs = Shape::panels * panel_outputs / 2, own = Shape::rows * pairs / Shape::threads;
  constexpr int at_once = Shape::blocks_a_multiprocessor == 1 ? 8 : 4;  // as registers allow
  static_assert(own % at_once == 0);
  const bool reads = call.epilogue == Epilogue::store && call.accumulate;
#pragma unroll 1
  for (int first = threadIdx.x; first < Shape::rows * pairs; first += at_once * Shape::threads) {
    float2 part[at_once][KCut::segments], start[at_once] = {};
    const auto each = [&](const auto& action) {
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const int at = first + i * Shape::threads;
        const int64_t row = first_row + at / pairs, output = first_panel * panel_outputs + at % pairs * 2;
        if (row < call.rows && output < call.outputs) action(row, output, part[i], start[i]);
      }
    };
    each([&](int64_t row, int64_t output, float2(&of_segment)[KCut::segments], float2& from) {
#pragma unroll
      for (int segment = 0; segment < KCut::segments; ++segment)
        of_segment[segment] =
            __ldcg(reinterpret_cast<const float2*>(split.of(segment) + row * split.outputs + output));
      const float* y = call.y + row * call.outputs + output;
      if (reads) from.x = y[0];
      if (reads && output + 1 < call.outputs) from.y = y[1];
    });
    each([&](int64_t row, int64_t output, const float2(&of_segment)[KCut::segments], const float2& from) {
      float low = 0, high = 0;
#pragma unroll
      for (int segment = 0; segment < KCut::segments; ++segment)
        low += of_segment[segment].x, high += of_segment[segment].y;
      if (!reads) return store_pair(call, row, output, low, high);
      float* y = call.y + row * call.outputs + output;
      y[0] = from.x + low;
      if (output + 1 < call.outputs) y[1] = from.y + high;
    });
  }
}

/// A block's tile of outputs by rows, over all of k, or over segment blockIdx.z.
template <class T, bool Tall, int PanelsAWarp, int TilesAWarp, bool Split>
__global__ void __launch_bounds__(Many<Tall, PanelsAWarp, TilesAWarp, Split>::threads,
                                  Many<Tall, PanelsAWarp, TilesAWarp, Split>::blocks_a_multiprocessor)
    linear_many(LinearCall call, SplitSums split) {
  using Shape = Many<Tall, PanelsAWarp, TilesAWarp, Split>;
  const Lane lane;
  const KCut cut(call.inputs);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * Shape::rows;
  const int64_t first_panel =
      static_cast<int64_t>(blockIdx.y) * Shape::panels + (Split ? split.first_output / panel_outputs : 0);
  const int first_segment = Split ? blockIdx.z : 0, last_segment = Split ? blockIdx.z + 1 : KCut::segments;
  let_next_begin();
  Chunks<T, Shape, Tall, PanelsAWarp, TilesAWarp> chunks(
      call, cut, lane, static_cast<int>(cut.begin(first_segment)), static_cast<int>(cut.begin(last_segment)),
      first_row, first_panel);
  const Corner corner = Corner::of<Shape, PanelsAWarp, TilesAWarp>(lane, first_row, first_panel);
  if constexpr (Split) {
    float sum[PanelsAWarp][TilesAWarp][4] = {};
    chunks.sum_to(static_cast<int>(cut.begin(last_segment)), sum);
    store_partial(call, corner, first_segment, sum, split);
    if (is_last_to_arrive(split.arrived + blockIdx.y * gridDim.x + blockIdx.x, KCut::segments))
      add_segments<Shape>(call, first_row, first_panel, split);
  } else {
    // A thread's own, in shared memory: registers hold the sums of one segment.
    float* totals = shared_memory<float>() + Shape::stages * Shape::stage_words + threadIdx.x;
    for (int segment = 0; segment < KCut::segments; ++segment) {
      float sum[PanelsAWarp][TilesAWarp][4] = {};
      chunks.sum_to(static_cast<int>(cut.begin(segment + 1)), sum);
#pragma unroll
      for (int i = 0; i < Shape::sums; ++i) {
        float& own = sum[i / (TilesAWarp * 4)][i / 4 % TilesAWarp][i % 4];
        own = (segment == 0 ? 0.0f : totals[i * Shape::threads]) + own;
      }
      if (segment + 1 == KCut::segments && call.epilogue == Epilogue::store)
        return add_tile(call, corner, sum);
#pragma unroll
      for (int i = 0; i < Shape::sums; ++i)
        totals[i * Shape::threads] = sum[i / (TilesAWarp * 4)][i / 4 % TilesAWarp][i % 4];
    }
    store_pairs<Shape, TilesAWarp>(call, corner, totals);
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
