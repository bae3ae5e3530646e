#include "kernels/calls.h"
#include "kernels/device/cuda.h"
#include "kernels/device/launchers.h"
#include "kernels/device/linear_plan.h"

// y = x W^T on tensor cores.  A panel of 16 outputs is the left operand, eight rows of x the right one, so
// weights are read once for any number of rows below the tile's, straight from the layout that the CPU packs.
// Within a step of 16 inputs, lane 4g + t multiplies inputs 4t .. 4t+3: any assignment of inputs to places
// would do, this one lets it read eight bytes at a time; outputs 2g and 2g + 1 of the panel take rows g and g
// + 8 of the tile.
namespace clover::kernels::cuda {
namespace {

constexpr int step_words = 8 * panel_outputs;  // of a panel: pairs of 16 inputs
constexpr int chunk_words = 2 * step_words;

struct Lane {
  int warp, group, in_group;
  __device__ Lane()
      : warp(threadIdx.x / warp_size), group(threadIdx.x % warp_size / 4), in_group(threadIdx.x % 4) {}
};

/// Inputs 16 step + 4t .. + 3 of one row of x, zeros beyond the ends.
template <class T, bool Aligned>
__device__ inline uint2 load_inputs(const LinearCall& call, int64_t row, int64_t first) {
  if (row >= call.rows) return {0, 0};
  const T* x = static_cast<const T*>(call.x) + row * call.inputs;
  if constexpr (Aligned) {
    return first < call.inputs ? *reinterpret_cast<const uint2*>(x + first) : uint2{0, 0};
  } else {
    uint32_t part[4];
    for (int i = 0; i < 4; ++i) part[i] = first + i < call.inputs ? x[first + i].bits : 0;
    return {part[0] | part[1] << 16, part[2] | part[3] << 16};
  }
}

__device__ inline void store(const LinearCall& call, int64_t row, int64_t output, float sum) {
  if (row >= call.rows || output >= call.outputs) return;
  float* to = call.y + row * call.outputs + output;
  if (call.accumulate) {
    *to = *to + sum;
  } else {
    *to = call.bias != nullptr ? call.bias[output] + sum : sum;
  }
}

// Few rows: bound by reading weights, which go from memory to registers, in batches of steps: one is on its
// way while the other is multiplied.
constexpr int batch_steps = 4;
struct Batch {
  uint32_t a[batch_steps][4];
};

/// Steps `first` .. of a panel that lie before `end`.  Lane 4g + t: pairs 2t and 2t + 1, outputs 2g, 2g + 1.
__device__ inline void load_batch(const uint32_t* panel, int64_t first, int64_t end, const Lane& lane,
                                  Batch& batch) {
#pragma unroll
  for (int i = 0; i < batch_steps; ++i) {
    if (first + i >= end) continue;
    const uint32_t* at =
        panel + (first + i) * step_words + 2 * lane.in_group * panel_outputs + 2 * lane.group;
    const uint2 low = load_once(reinterpret_cast<const uint2*>(at));
    const uint2 high = load_once(reinterpret_cast<const uint2*>(at + panel_outputs));
    batch.a[i][0] = low.x, batch.a[i][1] = low.y, batch.a[i][2] = high.x, batch.a[i][3] = high.y;
  }
}

template <class T, int Tiles, bool Aligned>
__device__ inline void multiply_batch(const LinearCall& call, int64_t first_row, int64_t first, int64_t end,
                                      const Lane& lane, const Batch& batch, float (&sum)[Tiles][4]) {
  uint2 b[batch_steps][Tiles];
#pragma unroll
  for (int i = 0; i < batch_steps; ++i) {
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile)
      b[i][tile] = load_inputs<T, Aligned>(call, first_row + tile * 8 + lane.group,
                                           16 * (first + i) + 4 * lane.in_group);
  }
#pragma unroll
  for (int i = 0; i < batch_steps; ++i) {
    if (first + i >= end) continue;
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile)
      multiply_add(sum[tile], batch.a[i], b[i][tile].x, b[i][tile].y, T{});
  }
}

/// A block a panel, a warp a segment of k.
template <class T, int Tiles, bool Aligned>
__global__ void __launch_bounds__(warp_size* KCut::segments) linear_few(LinearCall call) {
  __shared__ float part[KCut::segments][Tiles * 8][panel_outputs];
  const Lane lane;
  const KCut cut(call.inputs);
  const int64_t panel = blockIdx.x, first_row = static_cast<int64_t>(blockIdx.y) * Tiles * 8;
  const uint32_t* weights = static_cast<const uint32_t*>(call.panels) + panel * cut.chunks * chunk_words;
  const int64_t end = 2 * cut.begin(lane.warp + 1);
  int64_t step = 2 * cut.begin(lane.warp);
  Batch even, odd;
  let_next_begin();
  load_batch(weights, step, end, lane, even);
  load_batch(weights, step + batch_steps, end, lane, odd);
  wait_for_last();
  float sum[Tiles][4] = {};
  while (step < end) {
    multiply_batch<T, Tiles, Aligned>(call, first_row, step, end, lane, even, sum);
    load_batch(weights, step + 2 * batch_steps, end, lane, even);
    multiply_batch<T, Tiles, Aligned>(call, first_row, step + batch_steps, end, lane, odd, sum);
    load_batch(weights, step + 3 * batch_steps, end, lane, odd);
    step += 2 * batch_steps;
  }
#pragma unroll
  for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      part[lane.warp][tile * 8 + 2 * lane.in_group + i % 2][2 * lane.group + i / 2] = sum[tile][i];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < Tiles * 8 * panel_outputs; i += blockDim.x) {
    const int row = i / panel_outputs, output = i % panel_outputs;
    float total = 0;
    for (int segment = 0; segment < KCut::segments; ++segment) total += part[segment][row][output];
    store(call, first_row + row, panel * panel_outputs + output, total);
  }
}

/// Many rows: four warps side by side over the outputs of a block by two over its rows.  Weights and inputs
/// are staged through shared memory, chunks ahead; totals of finished segments wait there, too.
template <int PanelsAWarp, int TilesAWarp>
struct Many {
  static constexpr int over_outputs = 4, over_rows = 2;
  static constexpr int threads = over_outputs * over_rows * warp_size;
  static constexpr int panels = over_outputs * PanelsAWarp, rows = over_rows * TilesAWarp * 8;
  static constexpr int weight_words = panels * chunk_words, input_words = rows * 16;
  static constexpr int stage_words = weight_words + input_words;
  static constexpr int sums = PanelsAWarp * TilesAWarp * 4;  // a thread
  static constexpr int total_words = sums * threads;
  // As many as let two blocks live on a multiprocessor of sm_90, up to what its memory keeps on the way.
  static constexpr int room_words = 113 * 256, fitting = (room_words - total_words) / stage_words;
  static constexpr int stages = fitting < 8 ? fitting : 8;
  static_assert(stages >= 3);
  static constexpr int64_t bytes(bool split) {
    return (int64_t{stages} * stage_words + (split ? 0 : total_words)) * 4;
  }
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
    input_to_ = Shape::weight_words + (i / 2 % 2 * Shape::rows + i / 4) * 8 + i % 2 * 4;
    panels_left_ = static_cast<int>(panels_of(call.outputs) - first_panel) - i / 64;
    rows_left_ = static_cast<int>(call.rows - first_row) - i / 4;
    next_panels_ = chunks * chunk_words * Shape::over_outputs;
    weights_ = static_cast<const uint32_t*>(call.panels) + (first_panel + i / 64) * chunks * chunk_words +
               i / 32 % 2 * step_words + pair * panel_outputs + output;
    inputs_ = static_cast<const T*>(call.x) + (first_row + i / 4) * call.inputs + i % 4 * 8;
  }

  __device__ void weights(int chunk, uint32_t* stage) const {
#pragma unroll
    for (int i = 0; i < Shape::weight_words / 4 / Shape::threads; ++i)
      copy_async(stage + weight_to_ + i * Shape::over_outputs * chunk_words,
                 weights_ + i * next_panels_ + chunk * chunk_words, i * Shape::over_outputs >= panels_left_);
  }

  __device__ void inputs(int chunk, uint32_t* stage) const {
    constexpr int rows_at_once = Shape::threads / 4;
    const bool beyond = chunk * 32 + static_cast<int>(threadIdx.x) % 4 * 8 >= call_.inputs;
#pragma unroll
    for (int row = 0; row < Shape::rows; row += rows_at_once)
      if (row + static_cast<int>(threadIdx.x) / 4 < Shape::rows)
        copy_async(stage + input_to_ + row * 8, inputs_ + row * call_.inputs + chunk * 32,
                   beyond || row >= rows_left_);
  }

 private:
  const LinearCall& call_;
  const uint32_t* weights_;
  const T* inputs_;
  int64_t next_panels_;
  int weight_to_, input_to_, panels_left_, rows_left_;
};

__device__ inline uint2 read_two(const uint32_t* from) {
  return *reinterpret_cast<const uint2*>(from);
}

template <class T, int PanelsAWarp, int TilesAWarp>
__device__ __forceinline__ void multiply_chunk(const uint32_t* stage, const Lane& lane,
                                               float (&sum)[PanelsAWarp][TilesAWarp][4]) {
  using Shape = Many<PanelsAWarp, TilesAWarp>;
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

/// A block's tile of outputs by rows, over all of k, or over segment blockIdx.z into `partial`.
template <class T, int PanelsAWarp, int TilesAWarp>
__global__ void __launch_bounds__(Many<PanelsAWarp, TilesAWarp>::threads, 2)
    linear_many(LinearCall call, float* partial) {
  using Shape = Many<PanelsAWarp, TilesAWarp>;
  uint32_t* stages = shared_memory<uint32_t>();
  float* totals = reinterpret_cast<float*>(stages + Shape::stages * Shape::stage_words) + threadIdx.x;
  const Lane lane;
  const KCut cut(call.inputs);
  const bool split = partial != nullptr;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * Shape::rows;
  const int64_t first_panel = static_cast<int64_t>(blockIdx.y) * Shape::panels;
  const int first_segment = split ? blockIdx.z : 0, last_segment = split ? blockIdx.z + 1 : KCut::segments;
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
  for (int segment = first_segment; segment < last_segment; ++segment) {
    float sum[PanelsAWarp][TilesAWarp][4] = {};
    for (; chunk < cut.begin(segment + 1); ++chunk) {
      wait_for_copies<ahead - 1>();
      __syncthreads();  // everyone's copies are there, and everyone has left the stage that is filled next
      if (chunk + ahead < end) {
        fetch.weights(chunk + ahead, stage(chunk + ahead));
        fetch.inputs(chunk + ahead, stage(chunk + ahead));
      }
      end_copy_group();
      multiply_chunk<T>(stage(chunk), lane, sum);
    }
#pragma unroll
    for (int i = 0; i < Shape::sums; ++i) {
      const int panel = i / (TilesAWarp * 4), tile = i / 4 % TilesAWarp;
      const float one = sum[panel][tile][i % 4];
      const int64_t row =
          first_row + (lane.warp / Shape::over_outputs * TilesAWarp + tile) * 8 + 2 * lane.in_group + i % 2;
      const int64_t output =
          (first_panel + lane.warp % Shape::over_outputs * PanelsAWarp + panel) * panel_outputs +
          2 * lane.group + i % 4 / 2;
      if (split) {
        if (row < call.rows && output < panels_of(call.outputs) * panel_outputs)
          partial[partial_index(call, segment, row, output)] = one;
        continue;
      }
      const float total = (segment == 0 ? 0.0f : totals[i * Shape::threads]) + one;
      totals[i * Shape::threads] = total;
      if (segment + 1 == KCut::segments) store(call, row, output, total);
    }
  }
}

/// Adds up what blocks of one segment each have left.
__global__ void add_segments(LinearCall call, const float* partial) {
  let_next_begin();
  wait_for_last();
  const int64_t output = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x, row = blockIdx.y;
  if (output >= call.outputs) return;
  float total = 0;
#pragma unroll
  for (int segment = 0; segment < KCut::segments; ++segment)
    total += partial[partial_index(call, segment, row, output)];
  store(call, row, output, total);
}

/// fp32, for comparisons: a thread an output of one row, one chain of fused multiply-adds.
__global__ void linear_fp32(LinearCall call) {
  let_next_begin();
  wait_for_last();
  const int64_t output = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x, row = blockIdx.x;
  if (output >= call.outputs) return;
  const float* x = static_cast<const float*>(call.x) + row * call.inputs;
  const float* w = static_cast<const float*>(call.panels) +
                   output / panel_outputs * call.inputs * panel_outputs + output % panel_outputs;
  float sum = 0;
  for (int64_t k = 0; k < call.inputs; ++k) sum = fmaf(x[k], w[k * panel_outputs], sum);
  store(call, row, output, sum);
}

template <class T, int Tiles>
void launch_few(const LinearCall& call, Stream stream) {
  const dim3 grid(panels_of(call.outputs), (call.rows + Tiles * 8 - 1) / (Tiles * 8));
  constexpr int threads = warp_size * KCut::segments;
  if (call.inputs % 4 == 0) {
    launch("linear", linear_few<T, Tiles, true>, grid, threads, 0, stream, call);
  } else {
    launch("linear", linear_few<T, Tiles, false>, grid, threads, 0, stream, call);
  }
}

template <class T, int PanelsAWarp, int TilesAWarp>
void launch_many(const LinearCall& call, const ManyPlan& plan, float* workspace, Stream stream) {
  using Shape = Many<PanelsAWarp, TilesAWarp>;
  const dim3 grid(plan.row_blocks(call), plan.panel_blocks(call), plan.split ? KCut::segments : 1);
  float* partial = plan.split ? workspace : nullptr;
  launch("linear", linear_many<T, PanelsAWarp, TilesAWarp>, grid, Shape::threads, Shape::bytes(plan.split),
         stream, call, partial);
  if (!plan.split) return;
  constexpr int threads = 256;
  launch("linear", add_segments, dim3((call.outputs + threads - 1) / threads, call.rows), threads, 0, stream,
         call, partial);
}

template <class T, int PanelsAWarp>
void launch_many(const LinearCall& call, const ManyPlan& plan, float* workspace, Stream stream) {
  switch (plan.tiles_a_warp) {
    case 2:
      return launch_many<T, PanelsAWarp, 2>(call, plan, workspace, stream);
    case 4:
      return launch_many<T, PanelsAWarp, 4>(call, plan, workspace, stream);
    case 6:
      return launch_many<T, PanelsAWarp, 6>(call, plan, workspace, stream);
    default:
      return launch_many<T, PanelsAWarp, 8>(call, plan, workspace, stream);
  }
}

template <class T>
void launch_16_bit(const LinearCall& call, float* workspace, Stream stream) {
  if (!takes_many(call)) {
    return call.rows <= 8 ? launch_few<T, 1>(call, stream) : launch_few<T, 2>(call, stream);
  }
  const ManyPlan plan = many_plan(call);
  if (plan.panels_a_warp == 1) return launch_many<T, 1>(call, plan, workspace, stream);
  launch_many<T, 2>(call, plan, workspace, stream);
}

}  // namespace

void launch_linear(const LinearCall& call, float* workspace, Stream stream) {
  switch (call.element) {
    case Element::bf16:
      return launch_16_bit<Bf16>(call, workspace, stream);
    case Element::fp16:
      return launch_16_bit<Fp16>(call, workspace, stream);
    case Element::fp32: {
      constexpr int threads = 128;
      const dim3 grid(call.rows, (call.outputs + threads - 1) / threads);
      return launch("linear", linear_fp32, grid, threads, 0, stream, call);
    }
  }
}

}  // namespace clover::kernels::cuda
