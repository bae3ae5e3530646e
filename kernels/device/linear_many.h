#pragma once

#include "kernels/device/linear_tile.h"

namespace clover::kernels::cuda {
namespace {

/// Many rows: warps side by side over the outputs of a block by others over its rows, four by two or, in a
/// tall one, two by four.  Weights and inputs are staged through shared memory, chunks ahead; totals of
/// finished segments wait there, too.
template <bool Tall, int PanelsAWarp, int TilesAWarp, bool Split>
struct Many {
  static constexpr int over_outputs = Tall ? 2 : 4, over_rows = Tall ? 4 : 2;
  static constexpr int blocks_a_multiprocessor = Tall ? 1 : 2;
  static constexpr int threads = over_outputs * over_rows * warp_size;
  static constexpr int panels = over_outputs * PanelsAWarp, rows = over_rows * TilesAWarp * 8;
  static constexpr int weight_words = panels * chunk_words, input_words = rows * 16;
  static constexpr int stage_words = weight_words + input_words;
  static constexpr int sums = PanelsAWarp * TilesAWarp * 4;  // a thread
  static constexpr int total_words = Split ? 0 : sums * threads;
  // As many as let so many blocks live on a multiprocessor of sm_90, up to what its memory keeps on the way.
  static constexpr int room_words = 226 / blocks_a_multiprocessor * 256,
                       fitting = (room_words - total_words) / stage_words;
  static constexpr int stages = fitting < 8 ? fitting : 8;
  static_assert(stages >= 3);
  static constexpr int64_t bytes = (int64_t{stages} * stage_words + total_words) * 4;
};

/// Where a pair of inputs of a panel's output lies in a step of a stage: even pairs first, halves swapped in
/// the later ones, so that the lanes of a half warp read from different banks.
CLOVER_BOTH int weight_place(int pair, int output) {
  return (pair % 2 * 4 + pair / 2) * panel_outputs + (output ^ pair / 4 * 8);
}

/// What a thread copies to each stage: 16 bytes of every fourth panel, and of every 64th row of x.
template <class T, class Shape>
class Fetch {
 public:
  __device__ Fetch(const LinearCall& call, int64_t chunks, int64_t first_panel, int64_t first_row)
      : call_(call) {
    // Eight lanes write pairs p and p + 2, which lie in different banks.
    const int i = threadIdx.x, quarter = i % 32 / 8, output = i % 4 * 4;
    const int pair = quarter % 2 * 4 + quarter / 2 + i % 8 / 4 * 2;
    weight_to_ = i / 32 * step_words + weight_place(pair, output);
    // Eight lanes write four rows of one step.
    row_ = i / 16 * 4 + i / 2 % 4;
    const int step = i / 8 % 2, half = i % 2;
    input_ = 16 * step + 8 * half;
    input_to_ = Shape::weight_words + (step * Shape::rows + row_) * 8 + half * 4;
    panels_left_ = static_cast<int>(panels_of(call.outputs) - first_panel) - i / 64;
    rows_left_ = static_cast<int>(call.rows - first_row) - row_;
    next_panels_ = chunks * chunk_words * panels_at_once;
    weights_ = static_cast<const uint32_t*>(call.panels) + (first_panel + i / 64) * chunks * chunk_words +
               i / 32 % 2 * step_words + pair * panel_outputs + output;
    inputs_ = static_cast<const T*>(call.x) + (first_row + row_) * call.inputs + input_;
  }

  __device__ void weights(int chunk, uint32_t* stage) const {
#pragma unroll
    for (int i = 0; i < Shape::weight_words / 4 / Shape::threads; ++i)
      copy_async(stage + weight_to_ + i * panels_at_once * chunk_words,
                 weights_ + i * next_panels_ + chunk * chunk_words, i * panels_at_once >= panels_left_);
  }

  __device__ void inputs(int chunk, uint32_t* stage) const {
    constexpr int rows_at_once = Shape::threads / 4;
    const bool beyond = chunk * 32 + input_ >= call_.inputs;
#pragma unroll
    for (int row = 0; row < Shape::rows; row += rows_at_once)
      if (row + row_ < Shape::rows)
        copy_async(stage + input_to_ + row * 8, inputs_ + row * call_.inputs + chunk * 32,
                   beyond || row >= rows_left_);
  }

 private:
  static constexpr int panels_at_once = Shape::threads / 64;

  const LinearCall& call_;
  const uint32_t* weights_;
  const T* inputs_;
  int64_t next_panels_;
  int weight_to_, input_to_, panels_left_, rows_left_, row_, input_;
};

__device__ inline uint2 read_two(const uint32_t* from) {
  return *reinterpret_cast<const uint2*>(from);
}

template <class T, class Shape, int PanelsAWarp, int TilesAWarp>
__device__ __forceinline__ void multiply_chunk(const uint32_t* stage, const Lane& lane,
                                               float (&sum)[PanelsAWarp][TilesAWarp][4]) {
  const int over_outputs = lane.warp % Shape::over_outputs, over_rows = lane.warp / Shape::over_outputs;
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    uint32_t a[PanelsAWarp][4];
#pragma unroll
    for (int panel = 0; panel < PanelsAWarp; ++panel) {
      const uint32_t* at = stage + ((over_outputs * PanelsAWarp + panel) * 2 + step) * step_words;
      const uint2 low = read_two(at + weight_place(2 * lane.in_group, 2 * lane.group));
      const uint2 high = read_two(at + weight_place(2 * lane.in_group + 1, 2 * lane.group));
      a[panel][0] = low.x, a[panel][1] = low.y, a[panel][2] = high.x, a[panel][3] = high.y;
    }
#pragma unroll
    for (int tile = 0; tile < TilesAWarp; ++tile) {
      const int row = (over_rows * TilesAWarp + tile) * 8 + lane.group;
      const uint2 b =
          read_two(stage + Shape::weight_words + (step * Shape::rows + row) * 8 + 2 * lane.in_group);
#pragma unroll
      for (int panel = 0; panel < PanelsAWarp; ++panel)
        multiply_add(sum[panel][tile], a[panel], b.x, b.y, T{});
    }
  }
}

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

/// What sums are added to, all read before the first is written: one by one they would wait for each other.
template <int PanelsAWarp, int TilesAWarp>
__device__ __forceinline__ void add_tile(const LinearCall& call, const Corner& corner,
                                         const float (&sum)[PanelsAWarp][TilesAWarp][4]) {
  const bool adds = call.accumulate || call.bias != nullptr;
#pragma unroll
  for (int tile = 0; tile < TilesAWarp; tile += 2) {
    float start[PanelsAWarp][2][4] = {};
    const auto each = [&](const auto& action) {
#pragma unroll
      for (int i = 0; i < PanelsAWarp * 8; ++i) {
        const int panel = i / 8, of_two = i / 4 % 2;
        const int64_t row = corner.row_of(tile + of_two, i % 4), output = corner.output_of(panel, i % 4);
        if (row < call.rows && output < call.outputs)
          action(call.y[row * call.outputs + output], output, start[panel][of_two][i % 4],
                 sum[panel][tile + of_two][i % 4]);
      }
    };
    if (adds) {
      each([&](const float& y, int64_t output, float& from, float) {
        from = call.accumulate ? y : call.bias[output];
      });
    }
    each([&](float& y, int64_t, float from, float own) { y = adds ? from + own : own; });
  }
}

/// The other epilogues, out of the thread's own `totals`: not as many times in the program as there are sums.
template <class Shape, int TilesAWarp>
__device__ __forceinline__ void store_pairs(const LinearCall& call, const Corner& corner,
                                            const float* totals) {
#pragma unroll 4  // what pairs read is under way together
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

/// Adds up, in order, what the blocks of a tile have left.
template <class Shape>
__device__ inline void add_segments(const LinearCall& call, int64_t first_row, int64_t first_panel,
                                    const SplitSums& split) {
  constexpr int pairs = Shape::panels * panel_outputs / 2;
#pragma unroll 4
  for (int i = threadIdx.x; i < Shape::rows * pairs; i += Shape::threads) {
    const int64_t row = first_row + i / pairs, output = first_panel * panel_outputs + i % pairs * 2;
    if (row >= call.rows || output >= call.outputs) continue;
    float low = 0, high = 0;
#pragma unroll
    for (int segment = 0; segment < KCut::segments; ++segment) {
      const float2 two =
          __ldcg(reinterpret_cast<const float2*>(split.of(segment) + row * split.outputs + output));
      low += two.x, high += two.y;
    }
    store_pair(call, row, output, low, high);
  }
}

/// A block's tile of outputs by rows, over all of k, or over segment blockIdx.z.
template <class T, bool Tall, int PanelsAWarp, int TilesAWarp, bool Split>
__global__ void __launch_bounds__(Many<Tall, PanelsAWarp, TilesAWarp, Split>::threads,
                                  Many<Tall, PanelsAWarp, TilesAWarp, Split>::blocks_a_multiprocessor)
    linear_many(LinearCall call, SplitSums split) {
  using Shape = Many<Tall, PanelsAWarp, TilesAWarp, Split>;
  uint32_t* stages = shared_memory<uint32_t>();
  const Lane lane;
  const KCut cut(call.inputs);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * Shape::rows;
  const int64_t first_panel =
      static_cast<int64_t>(blockIdx.y) * Shape::panels + (Split ? split.first_output / panel_outputs : 0);
  const int first_segment = Split ? blockIdx.z : 0, last_segment = Split ? blockIdx.z + 1 : KCut::segments;
  const int begin = static_cast<int>(cut.begin(first_segment)),
            end = static_cast<int>(cut.begin(last_segment));
  const Fetch<T, Shape> fetch(call, cut.chunks, first_panel, first_row);
  const auto stage = [&](int chunk) {
    return stages + static_cast<unsigned>(chunk - begin) % Shape::stages * Shape::stage_words;
  };

  constexpr int ahead = Shape::stages - 1;
  let_next_begin();
  for (int chunk = begin; chunk < begin + ahead; ++chunk)
    if (chunk < end) fetch.weights(chunk, stage(chunk));
  wait_for_last();
  for (int chunk = begin; chunk < begin + ahead; ++chunk) {
    if (chunk < end) fetch.inputs(chunk, stage(chunk));
    end_copy_group();  // the weights came with the first
  }

  int chunk = begin;
  const auto sum_to = [&](int last, float(&sum)[PanelsAWarp][TilesAWarp][4]) {
    for (; chunk < last; ++chunk) {
      wait_for_copies<ahead - 1>();
      __syncthreads();  // everyone's copies are there, and everyone has left the stage that is filled next
      if (chunk + ahead < end) {
        fetch.weights(chunk + ahead, stage(chunk + ahead));
        fetch.inputs(chunk + ahead, stage(chunk + ahead));
      }
      end_copy_group();
      multiply_chunk<T, Shape>(stage(chunk), lane, sum);
    }
  };
  const Corner corner = Corner::of<Shape, PanelsAWarp, TilesAWarp>(lane, first_row, first_panel);
  if constexpr (Split) {
    float sum[PanelsAWarp][TilesAWarp][4] = {};
    sum_to(end, sum);
    store_partial(call, corner, first_segment, sum, split);
    if (is_last_to_arrive(split.arrived + blockIdx.y * gridDim.x + blockIdx.x, KCut::segments))
      add_segments<Shape>(call, first_row, first_panel, split);
  } else {
    // A thread's own, in shared memory: registers hold the sums of one segment.
    float* totals = reinterpret_cast<float*>(stages + Shape::stages * Shape::stage_words) + threadIdx.x;
    for (int segment = 0; segment < KCut::segments; ++segment) {
      float sum[PanelsAWarp][TilesAWarp][4] = {};
      sum_to(static_cast<int>(cut.begin(segment + 1)), sum);
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
