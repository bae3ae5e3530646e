#pragma once

#include "kernels/linear/linear_block.cuh"

// Kernel `flat`: how a thread block goes through the chunks of k, from memory to tensor cores (mma.sync).
// linear_block.cuh explains block tile, panel, tile and stage; linear_tile.cuh step, chunk, and which lane
// multiplies what.
namespace clover::kernels::cuda {
namespace {

/// Where a stage has the weights of one pair of inputs (`pair`, 0 .. 7) of a step and one output (`output`,
/// 0 .. 15) of a panel: the number of the 32-bit word in the words of this panel and step. Even pairs come
/// first, and pairs 4 .. 7 have their outputs 0 .. 7 and 8 .. 15 swapped: so the lanes of a half warp read
/// from different banks.
CLOVER_HOST_DEVICE int flat_weight_place(int pair, int output) {
  return (pair % 2 * 4 + pair / 2) * panel_outputs + (output ^ pair / 4 * 8);
}

/// A thread's copies to each stage, `count` of 16 bytes each: first of every panels_at_once-th panel of
/// weights, then of rows of x.
template <class T, class Shape>
class FlatCopies {
  using Inputs = InputCopies<T, Shape, 8>;  // x in a stage: [2 steps, rows, 8 words]
  static constexpr int panels_at_once = Shape::threads / 64, weight_copies = Shape::panels / panels_at_once;

 public:
  static constexpr int count = weight_copies + Inputs::count;

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
    keep_global_address_in_register(weights_);
  }

  __device__ __forceinline__ void weights(int chunk, uint32_t* stage) const {
#pragma unroll
    for (int i = 0; i < weight_copies; ++i) copy_weights(i, chunk, stage);
  }
  __device__ __forceinline__ void inputs(int chunk, uint32_t* stage) const {
    inputs_.copy(chunk, stage);
  }
  __device__ __forceinline__ void copy_one(int i, int chunk, uint32_t* stage) const {
    if (i < weight_copies) return copy_weights(i, chunk, stage);
    if (i < count) inputs_.copy_one(i - weight_copies, chunk, stage);
  }

 private:
  __device__ static Inputs inputs_of(const LinearCall& call, int64_t first_row) {
    // Eight lanes write four rows of one step.
    const int i = threadIdx.x, row = i / 16 * 4 + i / 2 % 4, step = i / 8 % 2, half = i % 2;
    return {call, first_row, row, 16 * step + 8 * half,
            Shape::weight_words + (step * Shape::rows + row) * 8 + half * 4};
  }
  __device__ __forceinline__ void copy_weights(int i, int chunk, uint32_t* stage) const {
    copy_async(stage + weight_to_ + i * panels_at_once * chunk_words,
               weights_ + i * next_panels_ + chunk * chunk_words, i * panels_at_once >= panels_left_);
  }

  const Inputs inputs_;
  const uint32_t* weights_;  // that the first copy reads, of chunk 0
  int64_t next_panels_;      // words from the panel of one copy to that of the next
  int weight_to_;            // word of a stage that the first copy of weights goes to
  int panels_left_;          // from the panel of the first copy to the end of the weight
};

/// A lane's operands of multiply_add (kernels/gpu/device.cuh) in a step of 16 inputs: its share `a` of the
/// weights of the warp's panels, and `b` of the warp's tiles of rows.
template <class Shape>
struct Operands {
  static constexpr int panels = Shape::panels_per_warp, tiles = Shape::tiles_per_warp;
  uint32_t a[panels][4];
  uint2 b[tiles];

  /// Offsets of the lane's first words in a stage: `low` and `high` are the addresses of read_left_operand,
  /// `input` that of the first tile's row.
  struct Place {
    int low, high, input;
    __device__ explicit Place(const Lane& lane) {
      const int panel = lane.warp % Shape::warps_over_outputs * panels,
                tile = lane.warp / Shape::warps_over_outputs * tiles;
      low = panel * chunk_words + flat_weight_place(2 * lane.in_group, 2 * lane.group);
      high = panel * chunk_words + flat_weight_place(2 * lane.in_group + 1, 2 * lane.group);
      input = Shape::weight_words + (tile * 8 + lane.group) * 8 + 2 * lane.in_group;
      keep_in_register(low), keep_in_register(high), keep_in_register(input);
    }
  };

  __device__ __forceinline__ void read(const uint32_t* stage, int step, const Place& at) {
#pragma unroll
    for (int panel = 0; panel < panels; ++panel) {
      const int words = panel * chunk_words + step * step_words;
      read_left_operand(stage + at.low + words, stage + at.high + words, a[panel]);
    }
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile)
      b[tile] = read_two(stage + at.input + step * Shape::rows * 8 + tile * 64);
  }

  /// Adds the products to `sum`; calls between(tile) after those of each tile.
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

/// Multiplies each chunk while later ones are copied.
template <class T, class Shape_>
class FlatChunks : Stages<Shape_, FlatCopies<T, Shape_>> {
 public:
  using Shape = Shape_;

  __device__ FlatChunks(const LinearCall& call, const KCut& cut, const Lane& lane, int begin, int end,
                        int64_t first_row, int64_t first_panel)
      : Base(Copies(call, cut, first_row, first_panel), begin, end, chunks_ahead), place_(lane) {}

  /// Adds the products of the chunks from the present one to `last` - 1 to `sum`.
  __device__ __forceinline__ void sum_to(int last, typename Shape::Sums& sum) {
    static_assert(copies_per_chunk <= 2 * tiles);
    for (; chunk_ < last; ++chunk_) {
      wait_for_copies<chunks_ahead - 1>();
      __syncthreads();  // all copies have arrived, and all threads have read the stage that is filled next
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        Operands<Shape> operands;
        operands.read(stage(chunk_), step, place_);
        operands.multiply(sum, T{}, [&](int tile) { copy_one(step * tiles + tile); });
      }
    }
  }

 private:
  using Copies = FlatCopies<T, Shape>;
  using Base = Stages<Shape, Copies>;
  using Base::chunk_, Base::copies_, Base::end_, Base::stage;
  static_assert(Shape::stages >= 3);
  static constexpr int tiles = Shape::tiles_per_warp, chunks_ahead = Shape::stages - 1,
                       copies_per_chunk = Copies::count;

  /// The i-th copy of chunk chunk_ + chunks_ahead, to the stage of the previous chunk.
  __device__ __forceinline__ void copy_one(int i) const {
    const int later = chunk_ + chunks_ahead;
    if (i < copies_per_chunk && later < end_) copies_.copy_one(i, later, stage(later));
    if (i == copies_per_chunk - 1) end_copy_group();
  }

  const typename Operands<Shape>::Place place_;
};

}  // namespace
}  // namespace clover::kernels::cuda
