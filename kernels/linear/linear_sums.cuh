#pragma once

#include "kernels/linear/linear_tile.cuh"

// Products of many rows by mma.sync: what is done with the sums of a block's tile.
namespace clover::kernels::cuda {
namespace {

/// The rows and outputs of a thread's sums in a block's tile.
struct Corner {
  int64_t row, output;  // of sum[0][0][0]

  template <class Shape>
  __device__ static Corner of(const Lane& lane, int64_t first_row, int64_t first_panel) {
    const int panel = lane.warp % Shape::over_outputs * Shape::panels_a_warp,
              tile = lane.warp / Shape::over_outputs * Shape::tiles_a_warp;
    return {first_row + tile * 8 + 2 * lane.in_group, (first_panel + panel) * panel_outputs + 2 * lane.group};
  }
  __device__ int64_t row_of(int tile, int odd) const { return row + tile * 8 + odd; }
};

/// Epilogue for pairs of y that are read and written at once, straight from registers. Two tiles at a time
/// are added to y, all of which is read before the first is written, so that the loads do not wait for each
/// other.
template <int PanelsAWarp, int TilesAWarp>
__device__ __forceinline__ void add_tile(const LinearCall& call, const Corner& corner,
                                         const float (&sum)[PanelsAWarp][TilesAWarp][4]) {
  constexpr int own_rows = 4;  // of two tiles
  const bool accumulate = call.accumulate, adds = accumulate || call.bias != nullptr;
  const int rows_left = static_cast<int>(call.rows - corner.row);
  const int64_t outputs_left = call.outputs - corner.output;
  const auto row_of = [](int r) { return r / 2 * 8 + r % 2; };
  float* own = call.y + corner.row * call.outputs + corner.output;
  float2 bias[PanelsAWarp] = {};
#pragma unroll
  for (int panel = 0; panel < PanelsAWarp; ++panel) {
    const int output = panel * panel_outputs;
    if (call.bias == nullptr || output >= outputs_left) continue;
    bias[panel] = {call.bias[corner.output + output], call.bias[corner.output + output + 1]};
  }
#pragma unroll
  for (int tile = 0; tile < TilesAWarp; tile += 2) {
    float2 start[own_rows][PanelsAWarp];
    const auto each = [&](const auto& action) {
#pragma unroll
      for (int r = 0; r < own_rows; ++r) {
        float* row = own + row_of(r) * call.outputs;
#pragma unroll
        for (int panel = 0; panel < PanelsAWarp; ++panel)
          if (tile * 8 + row_of(r) < rows_left && panel * panel_outputs < outputs_left)
            action(*reinterpret_cast<float2*>(row + panel * panel_outputs), start[r][panel], bias[panel],
                   sum[panel][tile + r / 2][r % 2], sum[panel][tile + r / 2][r % 2 + 2]);
      }
    };
    if (accumulate) each([](const float2& y, float2& from, const float2&, float, float) { from = y; });
    each([&](float2& y, const float2& from, const float2& of_bias, float low, float high) {
      const float2 to = accumulate ? from : of_bias;
      y = adds ? float2{to.x + low, to.y + high} : float2{low, high};
    });
    own += 16 * call.outputs;
  }
}

/// All other epilogues, from the thread's own `totals`, in a loop: unrolled, the code would be as long as
/// there are sums.
template <class Shape>
__device__ __forceinline__ void store_pairs(const LinearCall& call, const Corner& corner,
                                            const float4* totals) {
  constexpr int tiles = Shape::tiles_a_warp, at_once = tiles % 5 == 0 ? 5 : tiles % 4 == 0 ? 4 : 2;
  static_assert(tiles % at_once == 0);
  for (int panel = 0; panel < Shape::panels_a_warp; ++panel) {
    const OutputPair pair = OutputPair::of(call, corner.output + panel * panel_outputs);
#pragma unroll 1
    for (int first = 0; first < tiles; first += at_once) {
      BesidePair beside[at_once][2];
#pragma unroll
      for (int i = 0; i < at_once; ++i)
#pragma unroll
        for (int odd = 0; odd < 2; ++odd)
          beside[i][odd] = read_beside(call, corner.row_of(first + i, odd), pair);
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const float4 sums = totals[(panel * tiles + first + i) * Shape::threads];
        store_pair(call, corner.row_of(first + i, 0), pair, sums.x, sums.z, beside[i][0]);
        store_pair(call, corner.row_of(first + i, 1), pair, sums.y, sums.w, beside[i][1]);
      }
    }
  }
}

/// The best of each row's sums of each of the warp's panels.
template <class Shape>
__device__ __forceinline__ void store_best(const LinearCall& call, const Corner& corner,
                                           const float4* totals) {
  for (int panel = 0; panel < Shape::panels_a_warp; ++panel) {
    const int64_t output = corner.output + panel * panel_outputs;
#pragma unroll 1
    for (int tile = 0; tile < Shape::tiles_a_warp; ++tile) {
      const float4 sums = totals[(panel * Shape::tiles_a_warp + tile) * Shape::threads];
      store_best(call, corner.row_of(tile, 0), output, sums.x, sums.z, PairLanes::groups);
      store_best(call, corner.row_of(tile, 1), output, sums.y, sums.w, PairLanes::groups);
    }
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

/// Adds up, in order, the partial sums of a tile's blocks, loading those of several pairs of outputs before
/// the first is added.
template <class Shape>
__device__ inline void add_segments(const LinearCall& call, int64_t first_row, int64_t first_panel,
                                    const SplitSums& split) {
  constexpr int pairs = Shape::panels * panel_outputs / 2, rows_at_once = Shape::threads / pairs,
                own = Shape::rows / rows_at_once;
  constexpr int at_once = 4;  // as registers allow
  static_assert(own % at_once == 0);
  const bool reads = call.epilogue == Epilogue::store && call.accumulate;
  // A thread's rows are those of one pair, a warp's pairs those of one row.
  static_assert(Shape::threads % pairs == 0 && pairs % warp_size == 0);
  const OutputPair pair =
      OutputPair::of(call, first_panel * panel_outputs + static_cast<int>(threadIdx.x) % pairs * 2);
  if (reads && pair.output >= call.outputs) return;
  const float* partial = split.of(0) + pair.output;
#pragma unroll 1
  for (int first = threadIdx.x / pairs; first < Shape::rows; first += at_once * rows_at_once) {
    float2 part[at_once][KCut::segments], start[at_once] = {};
    BesidePair beside[at_once];
    const auto each = [&](const auto& action) {
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const int64_t row = first_row + first + i * rows_at_once;
        if (row < call.rows) action(row, part[i], start[i], beside[i]);
      }
    };
    each([&](int64_t row, float2(&of_segment)[KCut::segments], float2& from, BesidePair& read) {
      read = read_beside(call, row, pair);
#pragma unroll
      for (int segment = 0; segment < KCut::segments; ++segment)
        of_segment[segment] =
            __ldcg(reinterpret_cast<const float2*>(partial + (segment * split.rows + row) * split.outputs));
      const float* y = call.y + row * call.outputs + pair.output;
      if (reads) from.x = y[0];
      if (reads && pair.output + 1 < call.outputs) from.y = y[1];
    });
    each([&](int64_t row, const float2(&of_segment)[KCut::segments], const float2& from,
             const BesidePair& read) {
      float low = 0, high = 0;
#pragma unroll
      for (int segment = 0; segment < KCut::segments; ++segment)
        low += of_segment[segment].x, high += of_segment[segment].y;
      if (!reads) return store_pair(call, row, pair, low, high, read);
      float* y = call.y + row * call.outputs + pair.output;
      y[0] = from.x + low;
      if (pair.output + 1 < call.outputs) y[1] = from.y + high;
    });
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
