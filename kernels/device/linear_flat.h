#pragma once

#include "kernels/device/linear_block.h"

// Many rows by mma.sync, which any GPU has: how a block goes through the chunks of k, from memory to tensor
// cores.
namespace clover::kernels::cuda {
namespace {

/// Four warps side by side over the outputs of a block by two over its rows, two blocks a multiprocessor.
template <int PanelsAWarp, int TilesAWarp, bool Split>
using Flat = BlockShape<4, 2, PanelsAWarp, TilesAWarp, Split, 2, 16>;

/// Where a pair of inputs of a panel's output lies in a step of a stage: even pairs first, halves swapped in
/// the later ones, so that the lanes of a half warp read from different banks.
CLOVER_BOTH int flat_weight_place(int pair, int output) {
  return (pair % 2 * 4 + pair / 2) * panel_outputs + (output ^ pair / 4 * 8);
}

/// What a thread copies to each stage, in parts of 16 bytes: of every fourth panel, and of every 64th row of
/// x.
template <class T, class Shape>
class FlatCopies {
 public:
  static constexpr int panels_at_once = Shape::threads / 64, rows_at_once = Shape::threads / 4;
  static constexpr int weight_parts = Shape::panels / panels_at_once,
                       input_parts = (Shape::rows + rows_at_once - 1) / rows_at_once;

  __device__ FlatCopies(const LinearCall& call, int64_t chunks, int64_t first_panel, int64_t first_row) {
    // Eight lanes write pairs p and p + 2, which lie in different banks.
    const int i = threadIdx.x, quarter = i % 32 / 8, output = i % 4 * 4;
    const int pair = quarter % 2 * 4 + quarter / 2 + i % 8 / 4 * 2;
    weight_to_ = i / 32 * step_words + flat_weight_place(pair, output);
    // Eight lanes write four rows of one step.
    row_ = i / 16 * 4 + i / 2 % 4;
    const int step = i / 8 % 2, half = i % 2, input = 16 * step + 8 * half;
    input_to_ = Shape::weight_words + (step * Shape::rows + row_) * 8 + half * 4;
    panels_left_ = static_cast<int>(panels_of(call.outputs) - first_panel) - i / 64;
    rows_left_ = static_cast<int>(call.rows - first_row) - row_;
    chunks_left_ = (static_cast<int>(call.inputs) - input + 31) / 32;
    next_panels_ = chunks * chunk_words * panels_at_once;
    next_rows_ = call.inputs * rows_at_once;
    weights_ = static_cast<const uint32_t*>(call.panels) + (first_panel + i / 64) * chunks * chunk_words +
               i / 32 % 2 * step_words + pair * panel_outputs + output;
    inputs_ = static_cast<const T*>(call.x) + (first_row + row_) * call.inputs + input;
    keep_global(weights_);
    keep_global(inputs_);
  }

  __device__ __forceinline__ void weights(int chunk, uint32_t* stage) const {
#pragma unroll
    for (int part = 0; part < weight_parts; ++part) weight_part(part, chunk, stage);
  }
  __device__ __forceinline__ void inputs(int chunk, uint32_t* stage) const {
#pragma unroll
    for (int part = 0; part < input_parts; ++part) input_part(part, chunk, stage);
  }
  __device__ __forceinline__ void part(int part, int chunk, uint32_t* stage) const {
    if (part < weight_parts) return weight_part(part, chunk, stage);
    if (part < weight_parts + input_parts) input_part(part - weight_parts, chunk, stage);
  }

 private:
  __device__ __forceinline__ void weight_part(int part, int chunk, uint32_t* stage) const {
    copy_async(stage + weight_to_ + part * panels_at_once * chunk_words,
               weights_ + part * next_panels_ + chunk * chunk_words, part * panels_at_once >= panels_left_);
  }
  __device__ __forceinline__ void input_part(int part, int chunk, uint32_t* stage) const {
    const int row = part * rows_at_once;
    if (Shape::rows % rows_at_once != 0 && row + row_ >= Shape::rows) return;
    copy_async(stage + input_to_ + row * 8, inputs_ + part * next_rows_ + chunk * 32,
               chunk >= chunks_left_ || row >= rows_left_);
  }

  const uint32_t* weights_;
  const T* inputs_;
  int64_t next_panels_, next_rows_;
  int weight_to_, input_to_, row_, panels_left_, rows_left_, chunks_left_;
};

__device__ inline uint2 read_two(const uint32_t* from) {
  return *reinterpret_cast<const uint2*>(from);
}

/// What a warp multiplies in a step of 16 inputs.
template <class Shape>
struct Operands {
  static constexpr int panels = Shape::panels_a_warp, tiles = Shape::tiles_a_warp;
  uint32_t a[panels][4];
  uint2 b[tiles];

  /// Where a stage has the lane's first ones, in words.
  struct Place {
    int low, high, input;
    __device__ explicit Place(const Lane& lane) {
      const int panel = lane.warp % Shape::over_outputs * panels,
                tile = lane.warp / Shape::over_outputs * tiles;
      low = panel * chunk_words + flat_weight_place(2 * lane.in_group, 2 * lane.group);
      high = panel * chunk_words + flat_weight_place(2 * lane.in_group + 1, 2 * lane.group);
      input = Shape::weight_words + (tile * 8 + lane.group) * 8 + 2 * lane.in_group;
      keep(low), keep(high), keep(input);
    }
  };

  __device__ __forceinline__ void read(const uint32_t* stage, int step, const Place& at) {
#pragma unroll
    for (int panel = 0; panel < panels; ++panel) {
      const int words = panel * chunk_words + step * step_words;
      const uint2 low = read_two(stage + at.low + words), high = read_two(stage + at.high + words);
      a[panel][0] = low.x, a[panel][1] = low.y, a[panel][2] = high.x, a[panel][3] = high.y;
    }
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile)
      b[tile] = read_two(stage + at.input + step * Shape::rows * 8 + tile * 64);
  }

  /// between(tile) behind each tile's products.
  template <class T, class Between>
  __device__ __forceinline__ void multiply(typename Shape::Sums& sum, T, const Between& between) const {
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
      for (int panel = 0; panel < panels; ++panel)
        multiply_add(sum[panel][tile], a[panel], b[tile].x, b[tile].y, T{});
      between(tile);
    }
  }
};

/// Each chunk is multiplied while later ones are copied.
template <class T, class Shape_>
class FlatChunks : Stages<Shape_, FlatCopies<T, Shape_>> {
 public:
  using Shape = Shape_;

  __device__ FlatChunks(const LinearCall& call, const KCut& cut, const Lane& lane, int begin, int end,
                        int64_t first_row, int64_t first_panel)
      : Base(Copies(call, cut.chunks, first_panel, first_row), begin, end, ahead), place_(lane) {}

  /// Adds the products of the chunks before `last` to `sum`.
  __device__ __forceinline__ void sum_to(int last, typename Shape::Sums& sum) {
    static_assert(parts <= 2 * tiles);
    for (; chunk_ < last; ++chunk_) {
      wait_for_copies<ahead - 1>();
      __syncthreads();  // everyone's copies are there, and everyone has left the stage that is filled next
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        Operands<Shape> operands;
        operands.read(stage(chunk_), step, place_);
        operands.multiply(sum, T{}, [&](int tile) { copy_part(step * tiles + tile); });
      }
    }
  }

 private:
  using Copies = FlatCopies<T, Shape>;
  using Base = Stages<Shape, Copies>;
  using Base::chunk_, Base::copies_, Base::end_, Base::stage;
  static_assert(Shape::stages >= 3);
  static constexpr int tiles = Shape::tiles_a_warp, ahead = Shape::stages - 1,
                       parts = Copies::weight_parts + Copies::input_parts;

  /// The `part`-th copy of the chunk that takes the room of the last one, which everyone has left.
  __device__ __forceinline__ void copy_part(int part) const {
    const int later = chunk_ + ahead;
    if (part < parts && later < end_) copies_.part(part, later, stage(later));
    if (part == parts - 1) end_copy_group();
  }

  const typename Operands<Shape>::Place place_;
};

}  // namespace
}  // namespace clover::kernels::cuda
