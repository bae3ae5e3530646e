#pragma once

#include "kernels/linear/linear_block.cuh"

// Products of many rows by mma.sync, which every GPU has: how a block goes through the chunks of k, from
// memory to tensor cores.
namespace clover::kernels::cuda {
namespace {

/// Where a pair of inputs of a panel's output lies in a step of a stage: even pairs first, halves swapped in
/// the later ones, so that the lanes of a half warp read from different banks.
CLOVER_HOST_DEVICE int flat_weight_place(int pair, int output) {
  return (pair % 2 * 4 + pair / 2) * panel_outputs + (output ^ pair / 4 * 8);
}

/// What a thread copies to each stage, 16 bytes at a time: of every fourth panel, and of rows of x.
template <class T, class Shape>
class FlatCopies {
  using Inputs = InputCopies<T, Shape, 8>;  // rows of one step side by side
  static constexpr int panels_at_once = Shape::threads / 64, weight_parts = Shape::panels / panels_at_once;

 public:
  static constexpr int parts = weight_parts + Inputs::parts;

  __device__ FlatCopies(const LinearCall& call, const KCut& cut, int64_t first_row, int64_t first_panel)
      : inputs_(inputs_of(call, first_row)) {
    // Eight lanes write pairs p and p + 2, which lie in different banks.
    const int i = threadIdx.x, quarter = i % 32 / 8, output = i % 4 * 4;
    const int pair = quarter % 2 * 4 + quarter / 2 + i % 8 / 4 * 2;
    weight_to_ = i / 32 * step_words + flat_weight_place(pair, output);
    panels_left_ = static_cast<int>(panels_of(call.outputs) - first_panel) - i / 64;
    next_panels_ = cut.chunks * chunk_words * panels_at_once;
    weights_ = static_cast<const uint32_t*>(call.panels) + (first_panel + i / 64) * cut.chunks * chunk_words +
               i / 32 % 2 * step_words + pair * panel_outputs + output;
    keep_global(weights_);
  }

  __device__ __forceinline__ void weights(int chunk, uint32_t* stage) const {
#pragma unroll
    for (int part = 0; part < weight_parts; ++part) weight_part(part, chunk, stage);
  }
  __device__ __forceinline__ void inputs(int chunk, uint32_t* stage) const {
    inputs_.copy(chunk, stage);
  }
  __device__ __forceinline__ void part(int part, int chunk, uint32_t* stage) const {
    if (part < weight_parts) return weight_part(part, chunk, stage);
    if (part < parts) inputs_.copy_part(part - weight_parts, chunk, stage);
  }

 private:
  __device__ static Inputs inputs_of(const LinearCall& call, int64_t first_row) {
    // Eight lanes write four rows of one step.
    const int i = threadIdx.x, row = i / 16 * 4 + i / 2 % 4, step = i / 8 % 2, half = i % 2;
    return {call, first_row, row, 16 * step + 8 * half,
            Shape::weight_words + (step * Shape::rows + row) * 8 + half * 4};
  }
  __device__ __forceinline__ void weight_part(int part, int chunk, uint32_t* stage) const {
    copy_async(stage + weight_to_ + part * panels_at_once * chunk_words,
               weights_ + part * next_panels_ + chunk * chunk_words, part * panels_at_once >= panels_left_);
  }

  const Inputs inputs_;
  const uint32_t* weights_;
  int64_t next_panels_;
  int weight_to_, panels_left_;
};

/// What a warp multiplies in a step of 16 inputs.
template <class Shape>
struct Operands {
  static constexpr int panels = Shape::panels_a_warp, tiles = Shape::tiles_a_warp;
  uint32_t a[panels][4];
  uint2 b[tiles];

  /// Offset of the lane's first words in a stage.
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
      read_left(stage + at.low + words, stage + at.high + words, a[panel]);
    }
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile)
      b[tile] = read_two(stage + at.input + step * Shape::rows * 8 + tile * 64);
  }

  /// Calls between(tile) after each tile's products.
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
      : Base(Copies(call, cut, first_row, first_panel), begin, end, ahead), place_(lane) {}

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
  static constexpr int tiles = Shape::tiles_a_warp, ahead = Shape::stages - 1, parts = Copies::parts;

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
