#pragma once

#include "kernels/device/linear_many.h"
#include "kernels/device/warpgroup.h"

// Many rows by sm_90's products of four warps.
namespace clover::kernels::cuda {
namespace {

/// Eight warps side by side over the outputs, a panel each, all of the block's rows in each.  Weights and
/// inputs are staged through shared memory, chunks ahead; from there weights go to registers.
template <int TilesAWarp, bool Split>
struct Tall : BlockShape<8, 1, 1, TilesAWarp, Split> {
  using Base = BlockShape<8, 1, 1, TilesAWarp, Split>;
  static constexpr int blocks_a_multiprocessor = 1;
  static constexpr int tiles_a_product = TilesAWarp % 10 == 0 ? 10 : 8;
  static_assert(TilesAWarp % tiles_a_product == 0);
  static constexpr int input_words = Base::rows * row_words;
  static constexpr int stage_words = input_words + Base::panels * chunk_words;
  static constexpr int room_words = 226 * 256 - rows_alignment / 4,
                       fitting = (room_words - Base::total_words) / stage_words;
  static constexpr int stages = fitting < 8 ? fitting : 8;
  static_assert(stages >= 4 && stage_words * 4 % rows_alignment == 0);
  static constexpr int64_t bytes = (int64_t{stages} * stage_words + Base::total_words) * 4 + rows_alignment;
};

/// Where a stage has a word of a panel's chunk, so that lanes that read pairs t of outputs 2g find them in
/// different banks.
CLOVER_BOTH int tall_weight_place(int word) {
  return word ^ word / 32 % 2 * 8;
}

/// What a thread copies to each stage, 16 bytes at a time: of its warp's panel, and of every 64th row of x.
template <class T, class Shape>
class TallCopies {
 public:
  __device__ TallCopies(const LinearCall& call, const KCut& cut, const Lane& lane, int64_t first_row,
                        int64_t first_panel) {
    const int in_warp = threadIdx.x % warp_size;
    // Warps beyond the last panel repeat it: what becomes of its sums nobody looks at.
    const int64_t panel = first_panel + lane.warp, last_panel = panels_of(call.outputs) - 1;
    weights_ = static_cast<const uint32_t*>(call.panels) +
               (panel < last_panel ? panel : last_panel) * cut.chunks * chunk_words + 4 * in_warp;
    weight_to_ = Shape::input_words + lane.warp * chunk_words + tall_weight_place(4 * in_warp);
    // Eight lanes write two rows, to different banks.
    const int sixteen = threadIdx.x % 4, input = 8 * sixteen;
    row_ = threadIdx.x / 4;
    input_to_ = row_place(row_, sixteen);
    rows_left_ = static_cast<int>(call.rows - first_row) - row_;
    chunks_left_ = (static_cast<int>(call.inputs) - input + 31) / 32;
    next_rows_ = call.inputs * rows_at_once;
    inputs_ = static_cast<const T*>(call.x) + (first_row + row_) * call.inputs + input;
    keep_global(weights_);
    keep_global(inputs_);
  }

  __device__ __forceinline__ void weights(int chunk, uint32_t* stage) const {
#pragma unroll
    for (int step = 0; step < 2; ++step)
      copy_async(stage + weight_to_ + step * step_words, weights_ + chunk * chunk_words + step * step_words,
                 false);
  }
  /// Zeros beyond the end.
  __device__ __forceinline__ void inputs(int chunk, uint32_t* stage) const {
#pragma unroll
    for (int row = 0; row < Shape::rows; row += rows_at_once) {
      if (Shape::rows - row < rows_at_once && row + row_ >= Shape::rows) continue;
      copy_async(stage + input_to_ + row * row_words, inputs_ + row / rows_at_once * next_rows_ + chunk * 32,
                 chunk >= chunks_left_ || row >= rows_left_);
    }
  }

 private:
  static constexpr int rows_at_once = Shape::threads / 4;
  static_assert(rows_at_once % 8 == 0);  // so far on, a row has the same place among its neighbours
  const uint32_t* weights_;
  const T* inputs_;
  int64_t next_rows_;
  int weight_to_, input_to_, row_, rows_left_, chunks_left_;
};

/// The chunks of a block, one after the other: tensor cores have one to multiply while the threads see to the
/// next.
template <class T, class Shape_>
class TallChunks {
 public:
  using Shape = Shape_;

  __device__ TallChunks(const LinearCall& call, const KCut& cut, const Lane& lane, int begin, int end,
                        int64_t first_row, int64_t first_panel)
      : copies_(call, cut, lane, first_row, first_panel), begin_(begin), end_(end), chunk_(begin) {
    unsigned char* shared = shared_memory<unsigned char>() + Shape::total_words * 4;
    shared += -reinterpret_cast<uintptr_t>(shared) % rows_alignment;
    stages_ = reinterpret_cast<uint32_t*>(shared);
    weights_at_ = Shape::input_words + lane.warp * chunk_words +
                  tall_weight_place(lane.in_group * panel_outputs + 2 * lane.group);
    for (int chunk = begin; chunk < begin + ahead; ++chunk)
      if (chunk < end) copies_.weights(chunk, stage(chunk));
    wait_for_last();
    for (int chunk = begin; chunk < begin + ahead; ++chunk) {
      if (chunk < end) copies_.inputs(chunk, stage(chunk));
      end_copy_group();  // the weights came with the first
    }
  }

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
  // Copies go to the stage that was multiplied two chunks ago: all warps are done with that.
  static constexpr int ahead = Shape::stages - 2;

  __device__ __forceinline__ uint32_t* stage(int chunk) const {
    return stages_ + static_cast<unsigned>(chunk - begin_) % Shape::stages * Shape::stage_words;
  }

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
      const uint2 low = *reinterpret_cast<const uint2*>(weights),
                  high = *reinterpret_cast<const uint2*>(weights + step_words / 2);
      a[step][0] = low.x, a[step][1] = low.y, a[step][2] = high.x, a[step][3] = high.y;
    }
    const int later = chunk_ + ahead;
    if (later < end_) copies_.weights(later, stage(later)), copies_.inputs(later, stage(later));
    end_copy_group();
    begin_products();
#pragma unroll
    for (int step = 0; step < 2; ++step)
#pragma unroll
      for (int tile = 0; tile < Shape::tiles_a_warp; tile += Shape::tiles_a_product)
        begin_multiply<Shape::tiles_a_product>(sum + tile, a[step], now + tile * 8 * row_words, 2 * step,
                                               T{});
    end_product_group();
    wait_for_products<1>();
#pragma unroll
    for (int step = 0; step < 2; ++step) hold(before[step]);
  }

  const TallCopies<T, Shape> copies_;
  const int begin_, end_;
  int chunk_, weights_at_;
  uint32_t* stages_;
};

}  // namespace
}  // namespace clover::kernels::cuda
