#pragma once

#include "kernels/device/linear_block.h"
#include "kernels/device/warpgroup.h"

// Many rows by sm_90's products of four warps.
namespace clover::kernels::cuda {
namespace {

/// Eight warps, two times four, side by side over the outputs, a panel each, all of the block's rows in each.
template <int TilesAWarp, bool Split>
using Tall = BlockShape<8, 1, 1, TilesAWarp, Split, 1, rows_alignment>;

/// Where a stage has a word of a panel's chunk, so that lanes that read pairs t of outputs 2g find them in
/// different banks.
CLOVER_BOTH int tall_weight_place(int word) {
  return word ^ word / 32 % 2 * 8;
}

/// What a thread copies to each stage, 16 bytes at a time: of its warp's panel, and of rows of x.
template <class T, class Shape>
class TallCopies {
  using Inputs = InputCopies<T, Shape, row_words>;
  static_assert(8 * row_words * 4 == rows_alignment);
  static_assert(Inputs::rows_at_once % 8 == 0);  // so far on, a row has the same place among its neighbours

 public:
  static constexpr int weights_behind = Shape::rows * row_words;  // the inputs, which must be aligned

  __device__ TallCopies(const LinearCall& call, const KCut& cut, int64_t first_row, int64_t first_panel)
      : inputs_(inputs_of(call, first_row)) {
    const int warp = threadIdx.x / warp_size, in_warp = threadIdx.x % warp_size;
    // Warps beyond the last panel repeat it: what becomes of its sums nobody looks at.
    const int64_t panel = first_panel + warp, last_panel = panels_of(call.outputs) - 1;
    weights_ = static_cast<const uint32_t*>(call.panels) +
               (panel < last_panel ? panel : last_panel) * cut.chunks * chunk_words + 4 * in_warp;
    weight_to_ = weights_behind + warp * chunk_words + tall_weight_place(4 * in_warp);
    keep_global(weights_);
  }

  __device__ __forceinline__ void weights(int chunk, uint32_t* stage) const {
#pragma unroll
    for (int step = 0; step < 2; ++step)
      copy_async(stage + weight_to_ + step * step_words, weights_ + chunk * chunk_words + step * step_words,
                 false);
  }
  __device__ __forceinline__ void inputs(int chunk, uint32_t* stage) const {
    inputs_.copy(chunk, stage);
  }

 private:
  __device__ static Inputs inputs_of(const LinearCall& call, int64_t first_row) {
    // Eight lanes write two rows, to different banks.
    const int row = threadIdx.x / 4, sixteen = threadIdx.x % 4;
    return {call, first_row, row, 8 * sixteen, row_place(row, sixteen)};
  }

  const Inputs inputs_;
  const uint32_t* weights_;
  int weight_to_;
};

/// Tensor cores have one chunk to multiply while the threads see to the next.
template <class T, class Shape_>
class TallChunks : Stages<Shape_, TallCopies<T, Shape_>> {
 public:
  using Shape = Shape_;

  __device__ TallChunks(const LinearCall& call, const KCut& cut, const Lane& lane, int begin, int end,
                        int64_t first_row, int64_t first_panel)
      : Base(Copies(call, cut, first_row, first_panel), begin, end, ahead),
        weights_at_(Copies::weights_behind + lane.warp * chunk_words +
                    tall_weight_place(lane.in_group * panel_outputs + 2 * lane.group)) {}

  /// Adds the products of the chunks before `last` to `sum`.
  __device__ __forceinline__ void sum_to(int last, typename Shape::Sums& sum) {
    uint32_t even[2][4] = {}, odd[2][4] = {};  // weights, of a chunk by its number
    while (chunk_ < last) {
      multiply(even, odd, sum[0]);
      if (++chunk_ == last) break;
      multiply(odd, even, sum[0]);
      ++chunk_;
    }
    wait_for_products<0>();
#pragma unroll
    for (int i = 0; i < Shape::sums; ++i) read_behind_wait(sum[0][i / 4][i % 4]);
  }

 private:
  using Copies = TallCopies<T, Shape>;
  using Base = Stages<Shape, Copies>;
  using Base::chunk_, Base::copies_, Base::end_, Base::stage;
  static constexpr int tiles_a_product = Shape::tiles_a_warp % 10 == 0 ? 10 : 8;
  static_assert(Shape::tiles_a_warp % tiles_a_product == 0 && Shape::stages >= 4);
  // Copies go to the stage that was multiplied two chunks ago: all warps are done with that.
  static constexpr int ahead = Shape::stages - 2;

  /// Begins with the present chunk, whose weights `a` will hold, and waits for the one before.
  __device__ __forceinline__ void multiply(uint32_t (&a)[2][4], const uint32_t (&before)[2][4],
                                           float (&sum)[Shape::tiles_a_warp][4]) const {
    wait_for_copies<ahead - 1>();
    show_tensor_cores();
    __syncthreads();  // everyone's copies are there, and everyone is done with the chunk before the last
    const uint32_t* now = stage(chunk_);
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      // Pairs t and t + 4 of outputs 2g and 2g + 1.
      const uint32_t* weights = now + weights_at_ + step * step_words;
      read_left(weights, weights + step_words / 2, a[step]);
    }
    const int later = chunk_ + ahead;
    if (later < end_) copies_.weights(later, stage(later)), copies_.inputs(later, stage(later));
    end_copy_group();
    begin_products();
#pragma unroll
    for (int step = 0; step < 2; ++step)
#pragma unroll
      for (int tile = 0; tile < Shape::tiles_a_warp; tile += tiles_a_product)
        begin_multiply<tiles_a_product>(sum + tile, a[step], now + tile * 8 * row_words, 2 * step, T{});
    end_product_group();
    wait_for_products<1>();
#pragma unroll
    for (int step = 0; step < 2; ++step) hold(before[step], /*never=*/end_ < 0, stage(0));
  }

  const int weights_at_;
};

}  // namespace
}  // namespace clover::kernels::cuda
