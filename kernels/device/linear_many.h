#pragma once

#include "kernels/device/linear_tile.h"

// Many rows: a block's tile, and what becomes of its sums; how they are made say linear_flat.h and
// linear_tall.h.
namespace clover::kernels::cuda {
namespace {

/// Words of a row of x in a chunk.
constexpr int row_words = 16;

/// Warps side by side over the outputs of a block by others over its rows; chunks of weights and inputs are
/// staged through shared memory, several ahead.
template <int OverOutputs, int OverRows, int PanelsAWarp, int TilesAWarp, bool Split,
          int BlocksAMultiprocessor, int Alignment>
struct BlockShape {
  static constexpr int over_outputs = OverOutputs, over_rows = OverRows;
  static constexpr int panels_a_warp = PanelsAWarp, tiles_a_warp = TilesAWarp;
  static constexpr bool split = Split;
  static constexpr int blocks_a_multiprocessor = BlocksAMultiprocessor;
  static constexpr int threads = over_outputs * over_rows * warp_size;
  static constexpr int panels = over_outputs * panels_a_warp, rows = over_rows * tiles_a_warp * 8;
  static constexpr int sums = panels_a_warp * tiles_a_warp * 4;  // a thread
  using Sums = float[panels_a_warp][tiles_a_warp][4];
  // Totals of finished segments wait in front of all else in shared memory: registers hold the sums of one.
  static constexpr int total_words = split ? 0 : sums * threads;
  static constexpr int weight_words = panels * chunk_words, stage_words = weight_words + rows * row_words;
  static constexpr int alignment = Alignment;  // of a stage, in bytes; shared memory has 16
  static_assert(stage_words * 4 % alignment == 0);
  // As many as let so many blocks live on a multiprocessor of sm_90, up to what its memory keeps on the way.
  static constexpr int room_words = 226 / blocks_a_multiprocessor * 256 - (alignment - 16) / 4,
                       fitting = (room_words - total_words) / stage_words;
  static constexpr int stages = fitting < 8 ? fitting : 8;
  static constexpr int64_t bytes = (int64_t{stages} * stage_words + total_words) * 4 + alignment - 16;
};

/// The chunks of a block on their way through its stages, chunk after chunk.  Copies: what a thread copies of
/// a chunk to a stage, weights and inputs.
template <class Shape, class Copies>
class Stages {
 protected:
  /// Begins with the first `ahead` ones.
  __device__ Stages(const Copies& copies, int begin, int end, int ahead)
      : copies_(copies), begin_(begin), end_(end), chunk_(begin) {
    unsigned char* at = shared_memory<unsigned char>() + Shape::total_words * 4;
    // Up to the next that is aligned.
    if constexpr (Shape::alignment > 16) at += -reinterpret_cast<uintptr_t>(at) % Shape::alignment;
    stages_ = reinterpret_cast<uint32_t*>(at);
    for (int chunk = begin; chunk < begin + ahead; ++chunk)
      if (chunk < end) copies_.weights(chunk, stage(chunk));
    wait_for_last();
    for (int chunk = begin; chunk < begin + ahead; ++chunk) {
      if (chunk < end) copies_.inputs(chunk, stage(chunk));
      end_copy_group();  // the weights came with the first
    }
  }

  __device__ __forceinline__ uint32_t* stage(int chunk) const {
    return stages_ + static_cast<unsigned>(chunk - begin_) % Shape::stages * Shape::stage_words;
  }

  const Copies copies_;
  const int begin_, end_;
  int chunk_;  // the present one

 private:
  uint32_t* stages_;
};

/// Where a thread's sums of a block's tile belong.
struct Corner {
  int64_t row, output;  // of sum[0][0][0]

  template <class Shape>
  __device__ static Corner of(const Lane& lane, int64_t first_row, int64_t first_panel) {
    const int panel = lane.warp % Shape::over_outputs * Shape::panels_a_warp,
              tile = lane.warp / Shape::over_outputs * Shape::tiles_a_warp;
    return {first_row + tile * 8 + 2 * lane.in_group, (first_panel + panel) * panel_outputs + 2 * lane.group};
  }
  __device__ int64_t row_of(int tile, int i) const { return row + tile * 8 + i % 2; }
  __device__ int64_t output_of(int panel, int i) const { return output + panel * panel_outputs + i / 2; }
};

/// Whether pairs of y can be read and written at once.
__device__ inline bool in_twos(const LinearCall& call) {
  return call.epilogue == Epilogue::store && call.outputs % 2 == 0 && is_aligned(call.y, 8);
}

/// For those, straight from registers.  Sums of two tiles at a time are added to what is there, all of it
/// read before the first is written: one by one they would wait for each other.
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

/// Everything else, out of the thread's own `totals`: not as many times in the program as there are sums.
template <class Shape>
__device__ __forceinline__ void store_pairs(const LinearCall& call, const Corner& corner,
                                            const float4* totals) {
  constexpr int tiles = Shape::tiles_a_warp, at_once = tiles % 5 == 0 ? 5 : tiles % 4 == 0 ? 4 : 2;
  static_assert(tiles % at_once == 0);
  for (int panel = 0; panel < Shape::panels_a_warp; ++panel) {
    const OutputPair pair = OutputPair::of(call, corner.output_of(panel, 0));
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
  constexpr int pairs = Shape::panels * panel_outputs / 2, rows_at_once = Shape::threads / pairs,
                own = Shape::rows / rows_at_once;
  constexpr int at_once = Shape::blocks_a_multiprocessor == 1 && own % 8 == 0 ? 8 : 4;  // as registers allow
  static_assert(own % at_once == 0);
  const bool reads = call.epilogue == Epilogue::store && call.accumulate;
  static_assert(Shape::threads % pairs == 0);  // a thread's rows are those of one pair
  const OutputPair pair =
      OutputPair::of(call, first_panel * panel_outputs + static_cast<int>(threadIdx.x) % pairs * 2);
  if (pair.output >= call.outputs) return;
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
  let_next_begin();
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
      if (segment + 1 == KCut::segments && in_twos(call)) return add_tile(call, corner, sum);
#pragma unroll
      for (int i = 0; i < Shape::sums / 4; ++i) {
        const float(&own)[4] = sum[i / tiles][i % tiles];
        totals[i * Shape::threads] = {own[0], own[1], own[2], own[3]};
      }
    }
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

/// Blocks of the plan that go through all of k, then those that share it.
template <class Whole, class Split>
void launch_whole_and_split(const LinearCall& call, const ManyPlan& plan, const SplitSums& sums,
                            Stream stream) {
  const int64_t row_blocks = plan.row_blocks(call), whole = plan.panel_blocks(call) - plan.split_blocks;
  launch_blocks<Whole>(call, row_blocks, whole, sums, stream);
  launch_blocks<Split>(call, row_blocks, plan.split_blocks, sums, stream);
}

}  // namespace
}  // namespace clover::kernels::cuda
