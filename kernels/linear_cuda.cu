#include "kernels/calls.h"
#include "kernels/device/cuda.h"
#include "kernels/device/k_cut.h"
#include "kernels/device/launchers.h"

// y = x W^T on tensor cores.  A panel of 16 outputs is the left operand, eight rows of x the right one, so
// weights are read once for any number of rows below the tile's, straight from the layout that the CPU packs.
// Within a step of 16 inputs, lane 4g + t multiplies inputs 4t .. 4t+3: any assignment of inputs to places
// would do, this one lets it read eight bytes at a time; outputs 2g and 2g + 1 of the panel take rows g and g
// + 8 of the tile.
namespace clover::kernels::cuda {
namespace {

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

/// Pairs 2t and 2t + 1 of a step, outputs 2g and 2g + 1 of a panel.
__device__ inline void load_weights(const uint32_t* panel, int64_t step, const Lane& lane, uint32_t (&a)[4]) {
  const uint32_t* at = panel + (8 * step + 2 * lane.in_group) * 16 + 2 * lane.group;
  const uint2 low = load_once(reinterpret_cast<const uint2*>(at));
  const uint2 high = load_once(reinterpret_cast<const uint2*>(at + 16));
  a[0] = low.x, a[1] = low.y, a[2] = high.x, a[3] = high.y;
}

/// A block a panel, a warp a segment of k: bound by reading weights.
template <class T, int Tiles, bool Aligned>
__global__ void __launch_bounds__(warp_size* KCut::segments) linear_few(LinearCall call) {
  __shared__ float part[KCut::segments][Tiles * 8][16];
  const Lane lane;
  const KCut cut(call.inputs);
  const int64_t panel = blockIdx.x, first_row = static_cast<int64_t>(blockIdx.y) * Tiles * 8;
  const uint32_t* weights = static_cast<const uint32_t*>(call.panels) + panel * cut.steps * 128;
  float sum[Tiles][4] = {};
  const int64_t end = cut.begin(lane.warp + 1);
#pragma unroll 4
  for (int64_t step = cut.begin(lane.warp); step < end; ++step) {
    uint32_t a[4];
    load_weights(weights, step, lane, a);
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
      const uint2 b =
          load_inputs<T, Aligned>(call, first_row + tile * 8 + lane.group, 16 * step + 4 * lane.in_group);
      multiply_add(sum[tile], a, b.x, b.y, T{});
    }
  }
#pragma unroll
  for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      part[lane.warp][tile * 8 + 2 * lane.in_group + i % 2][2 * lane.group + i / 2] = sum[tile][i];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < Tiles * 128; i += blockDim.x) {
    float total = 0;
    for (int segment = 0; segment < KCut::segments; ++segment) total += part[segment][i / 16][i % 16];
    store(call, first_row + i / 16, panel * 16 + i % 16, total);
  }
}

/// Many rows: 128 outputs by 64 rows a block, a warp 32 outputs by all rows, weights and inputs staged
/// through shared memory three steps ahead.
struct ManyTile {
  static constexpr int warps = 4, panels = 8, rows = 64, stages = 4;
  static constexpr int weight_words = panels * 128;  // of a step
  static constexpr int input_words = rows * 8;       // of a step
  static constexpr int stage_words = weight_words + input_words;
  static constexpr int64_t bytes = int64_t{stages} * stage_words * 4;
};

/// Where a pair of inputs of a panel's output lies in a stage: even pairs first, halves swapped in the later
/// ones, so that the lanes of a half warp read from different banks.
CLOVER_BOTH int weight_place(int pair, int output) {
  return (pair % 2 * 4 + pair / 2) * 16 + (output ^ pair / 4 * 8);
}

template <class T, bool Aligned>
__device__ inline void fetch_step(const LinearCall& call, const KCut& cut, int64_t first_panel,
                                  int64_t first_row, int64_t step, uint32_t* stage) {
  using Tile = ManyTile;
  const int64_t panels = (call.outputs + 15) / 16;
  for (int i = threadIdx.x; i < Tile::weight_words / 4; i += Tile::warps * warp_size) {
    const int64_t panel = first_panel + i / 32;
    const int pair = i % 32 / 4, output = i % 4 * 4;
    const uint32_t* from =
        static_cast<const uint32_t*>(call.panels) + (panel * cut.steps + step) * 128 + pair * 16 + output;
    copy_async(stage + i / 32 * 128 + weight_place(pair, output), from, panel >= panels);
  }
  uint32_t* inputs = stage + Tile::weight_words;
  for (int i = threadIdx.x; i < Tile::rows * 2; i += Tile::warps * warp_size) {
    const int row = i / 2, half = i % 2;
    const int64_t first = 16 * step + 8 * half;
    uint32_t* to = inputs + row * 8 + half * 4;
    if (Aligned) {
      const T* from = static_cast<const T*>(call.x) + (first_row + row) * call.inputs + first;
      copy_async(to, from, first_row + row >= call.rows || first >= call.inputs);
    } else {
      const uint2 low = load_inputs<T, false>(call, first_row + row, first);
      const uint2 high = load_inputs<T, false>(call, first_row + row, first + 4);
      to[0] = low.x, to[1] = low.y, to[2] = high.x, to[3] = high.y;
    }
  }
}

__device__ inline uint2 read_two(const uint32_t* from) {
  return *reinterpret_cast<const uint2*>(from);
}

template <class T>
__device__ __forceinline__ void multiply_step(const uint32_t* stage, const Lane& lane,
                                              float (&sum)[2][8][4]) {
  uint32_t a[2][4];
#pragma unroll
  for (int panel = 0; panel < 2; ++panel) {
    const uint32_t* at = stage + (lane.warp * 2 + panel) * 128;
    const uint2 low = read_two(at + weight_place(2 * lane.in_group, 2 * lane.group));
    const uint2 high = read_two(at + weight_place(2 * lane.in_group + 1, 2 * lane.group));
    a[panel][0] = low.x, a[panel][1] = low.y, a[panel][2] = high.x, a[panel][3] = high.y;
  }
#pragma unroll
  for (int tile = 0; tile < 8; ++tile) {
    const uint2 b =
        read_two(stage + ManyTile::weight_words + (tile * 8 + lane.group) * 8 + 2 * lane.in_group);
#pragma unroll
    for (int panel = 0; panel < 2; ++panel) multiply_add(sum[panel][tile], a[panel], b.x, b.y, T{});
  }
}

template <class T, bool Aligned>
__global__ void __launch_bounds__(ManyTile::warps* warp_size) linear_many(LinearCall call) {
  using Tile = ManyTile;
  uint32_t* stages = shared_memory<uint32_t>();
  const Lane lane;
  const KCut cut(call.inputs);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * Tile::rows;
  const int64_t first_panel = static_cast<int64_t>(blockIdx.y) * Tile::panels;
  const auto fetch = [&](int64_t step) {
    if (step < cut.steps)
      fetch_step<T, Aligned>(call, cut, first_panel, first_row, step,
                             stages + step % Tile::stages * Tile::stage_words);
    end_copy_group();
  };
  for (int step = 0; step < Tile::stages - 1; ++step) fetch(step);
  float total[2][8][4] = {}, sum[2][8][4];
  for (int64_t segment = 0; segment < KCut::segments; ++segment) {
#pragma unroll
    for (int i = 0; i < 64; ++i) sum[i / 32][i / 4 % 8][i % 4] = 0;
    for (int64_t step = cut.begin(segment); step < cut.begin(segment + 1); ++step) {
      wait_for_copies<Tile::stages - 2>();
      __syncthreads();  // everyone's copies are there, and everyone has left the stage that is filled next
      fetch(step + Tile::stages - 1);
      multiply_step<T>(stages + step % Tile::stages * Tile::stage_words, lane, sum);
    }
#pragma unroll
    for (int i = 0; i < 64; ++i) total[i / 32][i / 4 % 8][i % 4] += sum[i / 32][i / 4 % 8][i % 4];
  }
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    const int panel = i / 32, tile = i / 4 % 8;
    const int64_t output = (first_panel + lane.warp * 2 + panel) * 16 + 2 * lane.group + i % 4 / 2;
    store(call, first_row + tile * 8 + 2 * lane.in_group + i % 2, output, total[panel][tile][i % 4]);
  }
}

/// fp32, for comparisons: a thread an output of one row, one chain of fused multiply-adds.
__global__ void linear_fp32(LinearCall call) {
  const int64_t output = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x, row = blockIdx.x;
  if (output >= call.outputs) return;
  const float* x = static_cast<const float*>(call.x) + row * call.inputs;
  const float* w = static_cast<const float*>(call.panels) + output / 16 * call.inputs * 16 + output % 16;
  float sum = 0;
  for (int64_t k = 0; k < call.inputs; ++k) sum = fmaf(x[k], w[k * 16], sum);
  store(call, row, output, sum);
}

template <class T, int Tiles>
void launch_few(const LinearCall& call, Stream stream) {
  const dim3 grid((call.outputs + 15) / 16, (call.rows + Tiles * 8 - 1) / (Tiles * 8));
  constexpr int threads = warp_size * KCut::segments;
  if (call.inputs % 4 == 0) {
    launch("linear", linear_few<T, Tiles, true>, grid, threads, 0, stream, call);
  } else {
    launch("linear", linear_few<T, Tiles, false>, grid, threads, 0, stream, call);
  }
}

template <class T>
void launch_many(const LinearCall& call, Stream stream) {
  using Tile = ManyTile;
  const int64_t panels = (call.outputs + 15) / 16;
  const dim3 grid((call.rows + Tile::rows - 1) / Tile::rows, (panels + Tile::panels - 1) / Tile::panels);
  constexpr int threads = Tile::warps * warp_size;
  if (call.inputs % 8 == 0) {
    launch("linear", linear_many<T, true>, grid, threads, Tile::bytes, stream, call);
  } else {
    launch("linear", linear_many<T, false>, grid, threads, Tile::bytes, stream, call);
  }
}

template <class T>
void launch_16_bit(const LinearCall& call, Stream stream) {
  if (call.rows <= 8) return launch_few<T, 1>(call, stream);
  if (call.rows <= 16) return launch_few<T, 2>(call, stream);
  if (call.rows <= 32) return launch_few<T, 4>(call, stream);
  launch_many<T>(call, stream);
}

}  // namespace

void launch_linear(const LinearCall& call, Stream stream) {
  switch (call.element) {
    case Element::bf16:
      return launch_16_bit<Bf16>(call, stream);
    case Element::fp16:
      return launch_16_bit<Fp16>(call, stream);
    case Element::fp32: {
      constexpr int threads = 128;
      const dim3 grid(call.rows, (call.outputs + threads - 1) / threads);
      return launch("linear", linear_fp32, grid, threads, 0, stream, call);
    }
  }
}

}  // namespace clover::kernels::cuda
