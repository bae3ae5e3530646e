#pragma once

#include "kernels/linear/linear_tile.cuh"

// Kernel `flat`: the epilogues of a block tile (linear_block.cuh). A thread's sum[panel][tile][4] is the `d`
// of multiply_add (kernels/gpu/device.cuh) for each of its panels of 16 outputs and tiles of 8 rows: elements
// 0 and 1 are output 2g of an even and an odd row, elements 2 and 3 output 2g + 1, where the thread's lane is
// 4g + t.
namespace clover::kernels::cuda {
namespace {

/// The first row and output of a thread's sums; the others follow from it.
struct Corner {
  int64_t row, output;  // of sum[0][0][0]

  template <class Shape>
  __device__ static Corner of(const Lane& lane, int64_t first_row, int64_t first_panel) {
    const int panel = lane.warp % Shape::warps_over_outputs * Shape::panels_per_warp,
              tile = lane.warp / Shape::warps_over_outputs * Shape::tiles_per_warp;
    return {first_row + tile * 8 + 2 * lane.in_group, (first_panel + panel) * panel_outputs + 2 * lane.group};
  }
  __device__ int64_t row_of(int tile, int odd) const { return row + tile * 8 + odd; }
};

/// Epilogue::store where in_aligned_pairs(call), straight from registers. It works on two tiles of rows at a
/// time and reads all of their y before it writes the first, so that the loads do not wait for each other.
template <int PanelsPerWarp, int TilesPerWarp>
__device__ __forceinline__ void add_tile(const LinearCall& call, const Corner& corner,
                                         const float (&sum)[PanelsPerWarp][TilesPerWarp][4]) {
  constexpr int rows_of_two_tiles = 4;  // of this thread
  const bool accumulate = call.accumulate, adds = accumulate || call.bias != nullptr;
  const int rows_left = static_cast<int>(call.rows - corner.row);
  const int64_t outputs_left = call.outputs - corner.output;
  const auto row_of = [](int r) { return r / 2 * 8 + r % 2; };
  float* first_y = call.y + corner.row * call.outputs + corner.output;
  float2 bias[PanelsPerWarp] = {};
#pragma unroll
  for (int panel = 0; panel < PanelsPerWarp; ++panel) {
    const int output = panel * panel_outputs;
    if (call.bias == nullptr || output >= outputs_left) continue;
    bias[panel] = {call.bias[corner.output + output], call.bias[corner.output + output + 1]};
  }
#pragma unroll
  for (int tile = 0; tile < TilesPerWarp; tile += 2) {
    float2 start[rows_of_two_tiles][PanelsPerWarp];
    const auto each = [&](const auto& action) {
#pragma unroll
      for (int r = 0; r < rows_of_two_tiles; ++r) {
        float* row = first_y + row_of(r) * call.outputs;
#pragma unroll
        for (int panel = 0; panel < PanelsPerWarp; ++panel)
          if (tile * 8 + row_of(r) < rows_left && panel * panel_outputs < outputs_left)
            action(*reinterpret_cast<float2*>(row + panel * panel_outputs), start[r][panel], bias[panel],
                   sum[panel][tile + r / 2][r % 2], sum[panel][tile + r / 2][r % 2 + 2]);
      }
    };
    if (accumulate) each([](const float2& y, float2& from, const float2&, float, float) { from = y; });
    each([&](float2& y, const float2& from, const float2& pair_bias, float low, float high) {
      const float2 to = accumulate ? from : pair_bias;
      y = adds ? float2{to.x + low, to.y + high} : float2{low, high};
    });
    first_y += 16 * call.outputs;
  }
}

/// All epilogues but arg_max, from the thread's sums in shared memory (`totals`), because registers cannot be
/// indexed in a loop, and unrolled code would be too long.
template <class Shape>
__device__ __forceinline__ void store_pairs(const LinearCall& call, const Corner& corner,
                                            const float4* totals) {
  constexpr int tiles = Shape::tiles_per_warp, at_once = tiles % 5 == 0 ? 5 : tiles % 4 == 0 ? 4 : 2;
  static_assert(tiles % at_once == 0);
  for (int panel = 0; panel < Shape::panels_per_warp; ++panel) {
    const OutputPair pair = OutputPair::of(call, corner.output + panel * panel_outputs);
#pragma unroll 1
    for (int first = 0; first < tiles; first += at_once) {
      PairOperands operands[at_once][2];
#pragma unroll
      for (int i = 0; i < at_once; ++i)
#pragma unroll
        for (int odd = 0; odd < 2; ++odd)
          operands[i][odd] = read_operands(call, corner.row_of(first + i, odd), pair);
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const float4 sums = totals[(panel * tiles + first + i) * Shape::threads];
        store_pair(call, corner.row_of(first + i, 0), pair, sums.x, sums.z, operands[i][0]);
        store_pair(call, corner.row_of(first + i, 1), pair, sums.y, sums.w, operands[i][1]);
      }
    }
  }
}

/// Epilogue::arg_max of all sums of the warp.
template <class Shape>
__device__ __forceinline__ void store_arg_max(const LinearCall& call, const Corner& corner,
                                              const float4* totals) {
#pragma unroll 1
  for (int panel = 0; panel < Shape::panels_per_warp; ++panel) {
    const int64_t output = corner.output + panel * panel_outputs;
#pragma unroll 1
    for (int tile = 0; tile < Shape::tiles_per_warp; ++tile) {
      const float4 sums = totals[(panel * Shape::tiles_per_warp + tile) * Shape::threads];
      store_arg_max(call, corner.row_of(tile, 0), output, sums.x, sums.z, PairLanes::groups);
      store_arg_max(call, corner.row_of(tile, 1), output, sums.y, sums.w, PairLanes::groups);
    }
  }
}

/// Writes the sums of one segment of k (KCut) to split.partial.
template <int PanelsPerWarp, int TilesPerWarp>
__device__ __forceinline__ void store_partial(const LinearCall& call, const Corner& corner, int segment,
                                              const float (&sum)[PanelsPerWarp][TilesPerWarp][4],
                                              const SplitSums& split) {
  float* first_sum = split.of(segment) + corner.row * split.outputs + corner.output;
#pragma unroll
  for (int i = 0; i < PanelsPerWarp * TilesPerWarp * 2; ++i) {
    const int panel = i / 2 / TilesPerWarp, tile = i / 2 % TilesPerWarp, odd = i % 2;
    if (corner.row_of(tile, odd) >= call.rows) continue;  // `partial` has all outputs of the block
    *reinterpret_cast<float2*>(first_sum + (tile * 8 + odd) * split.outputs + panel * panel_outputs) =
        float2{sum[panel][tile][odd], sum[panel][tile][odd + 2]};
  }
}

/// Adds the four segments of a block tile's sums (KCut), in order, and applies the epilogue. The sums of
/// several pairs of outputs are loaded before the first is added.
template <class Shape>
__device__ inline void add_segments(const LinearCall& call, int64_t first_row, int64_t first_panel,
                                    const SplitSums& split) {
  constexpr int pairs = Shape::panels * panel_outputs / 2, rows_at_once = Shape::threads / pairs,
                rows_per_thread = Shape::rows / rows_at_once;
  constexpr int at_once = 4;  // as registers allow
  static_assert(rows_per_thread % at_once == 0);
  const bool accumulates = call.epilogue == Epilogue::store && call.accumulate;
  // A thread has one pair of outputs of several rows; a warp has pairs of one row.
  static_assert(Shape::threads % pairs == 0 && pairs % warp_size == 0);
  const OutputPair pair =
      OutputPair::of(call, first_panel * panel_outputs + static_cast<int>(threadIdx.x) % pairs * 2);
  if (accumulates && pair.output >= call.outputs) return;
  const float* partial = split.of(0) + pair.output;
#pragma unroll 1
  for (int first = threadIdx.x / pairs; first < Shape::rows; first += at_once * rows_at_once) {
    float2 segment_sums[at_once][KCut::segments], start[at_once] = {};  // start: y, which they are added to
    PairOperands operands[at_once];
    const auto each = [&](const auto& action) {
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const int64_t row = first_row + first + i * rows_at_once;
        if (row < call.rows) action(row, segment_sums[i], start[i], operands[i]);
      }
    };
    each([&](int64_t row, float2(&sums_of_row)[KCut::segments], float2& from, PairOperands& row_operands) {
      row_operands = read_operands(call, row, pair);
#pragma unroll
      for (int segment = 0; segment < KCut::segments; ++segment)
        sums_of_row[segment] =
            __ldcg(reinterpret_cast<const float2*>(partial + (segment * split.rows + row) * split.outputs));
      const float* y = call.y + row * call.outputs + pair.output;
      if (accumulates) from.x = y[0];
      if (accumulates && pair.output + 1 < call.outputs) from.y = y[1];
    });
    each([&](int64_t row, const float2(&sums_of_row)[KCut::segments], const float2& from,
             const PairOperands& row_operands) {
      float low = 0, high = 0;
#pragma unroll
      for (int segment = 0; segment < KCut::segments; ++segment)
        low += sums_of_row[segment].x, high += sums_of_row[segment].y;
      if (!accumulates) return store_pair(call, row, pair, low, high, row_operands);
      float* y = call.y + row * call.outputs + pair.output;
      y[0] = from.x + low;
      if (pair.output + 1 < call.outputs) y[1] = from.y + high;
    });
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
