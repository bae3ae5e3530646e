#pragma once

#include "kernels/linear/linear_tile.cuh"

// Kernel `flat`: the block tile (the outputs and rows that a thread block computes), and how its weights and
// inputs go through shared memory. Outputs come in panels of 16 (kernels/weights/panels.h), rows in tiles of
// 8, as a tensor core multiplies them. k, the inputs of a sum, are cut into chunks of 32, and the chunks into
// four segments (KCut in linear_plan.h); each segment is summed by itself, then the four sums are added.
namespace clover::kernels::cuda {
namespace {

/// 32-bit words of a row of x in a chunk of 32 inputs.
constexpr int row_words = 16;

/// The block tile: four warps over its outputs by two over its rows. A warp has PanelsPerWarp panels by
/// TilesPerWarp tiles. A stage holds one chunk of the block tile's weights and inputs. `Split`: the thread
/// block computes one segment of k alone.
template <int PanelsPerWarp, int TilesPerWarp, bool Split>
struct FlatShape {
  static constexpr int warps_over_outputs = 4, warps_over_rows = 2, blocks_per_multiprocessor = 2;
  static constexpr int panels_per_warp = PanelsPerWarp, tiles_per_warp = TilesPerWarp;
  static constexpr bool split = Split;
  static constexpr int threads = warps_over_outputs * warps_over_rows * warp_size;
  static constexpr int panels = warps_over_outputs * panels_per_warp,
                       rows = warps_over_rows * tiles_per_warp * 8;
  static constexpr int sums = panels_per_warp * tiles_per_warp * 4;  // fp32 sums of a thread
  using Sums = float[panels_per_warp][tiles_per_warp][4];
  // Registers hold the sums of one segment; totals of the segments before are at the start of shared memory.
  static constexpr int total_words = split ? 0 : sums * threads;
  static constexpr int weight_words = panels * chunk_words, stage_words = weight_words + rows * row_words;
  // As many stages as fit if blocks_per_multiprocessor blocks share the 226 KiB of a multiprocessor of sm_90;
  // 8 are enough for its memory bandwidth.
  static constexpr int available_words = 226 / blocks_per_multiprocessor * 256,
                       max_fitting_stages = (available_words - total_words) / stage_words;
  static constexpr int stages = max_fitting_stages < 8 ? max_fitting_stages : 8;
  static constexpr int64_t bytes = (int64_t{stages} * stage_words + total_words) * 4;
};

/// A thread's copies of x to each stage: `count` copies of 16 bytes (8 inputs), of every rows_at_once-th row,
/// with zeros beyond the last row and input. `RowStride`: words from one row to the next in a stage.
template <class T, class Shape, int RowStride>
class InputCopies {
 public:
  static constexpr int rows_at_once = Shape::threads / 4,
                       count = (Shape::rows + rows_at_once - 1) / rows_at_once;

  /// The first copy is of row `row` of the block tile, which begins at row first_row of x: inputs `input` ..
  /// input + 7 of each chunk, to word `to` of a stage.
  __device__ InputCopies(const LinearCall& call, int64_t first_row, int row, int input, int to)
      : from_(static_cast<const T*>(call.x) + (first_row + row) * call.inputs + input),
        next_rows_(call.inputs * rows_at_once),
        row_(row),
        to_(to),
        rows_left_(static_cast<int>(call.rows - first_row) - row),
        chunks_left_((static_cast<int>(call.inputs) - input + 31) / 32) {
    keep_global_address_in_register(from_);
  }

  /// The i-th of the `count` copies of a chunk.
  __device__ __forceinline__ void copy_one(int i, int chunk, uint32_t* stage) const {
    const int row = i * rows_at_once;
    if (Shape::rows % rows_at_once != 0 && row + row_ >= Shape::rows) return;
    copy_async(stage + to_ + row * RowStride, from_ + i * next_rows_ + chunk * 32,
               chunk >= chunks_left_ || row >= rows_left_);
  }
  __device__ __forceinline__ void copy(int chunk, uint32_t* stage) const {
#pragma unroll
    for (int i = 0; i < count; ++i) copy_one(i, chunk, stage);
  }

 private:
  const T* from_;                // of the first copy, in chunk 0
  int64_t next_rows_;            // elements from the row of one copy to that of the next
  int row_, to_;                 // of the first copy: row of the block tile, and word of a stage
  int rows_left_, chunks_left_;  // from the first copy on, to the end of x
};

/// The pipeline of a thread block: chunk after chunk is copied to the next stage. `Copies` are a thread's
/// copies of a chunk's weights and inputs to a stage; begin and end: the thread block's chunks.
template <class Shape, class Copies>
class Stages {
 protected:
  /// Begins the copies of the first `chunks_ahead` chunks.
  __device__ Stages(const Copies& copies, int begin, int end, int chunks_ahead)
      : copies_(copies), begin_(begin), end_(end), chunk_(begin) {
    stages_ = shared_memory<uint32_t>() + Shape::total_words;
    for (int chunk = begin; chunk < begin + chunks_ahead; ++chunk)
      if (chunk < end) copies_.weights(chunk, stage(chunk));
    wait_for_prior_kernel();
    for (int chunk = begin; chunk < begin + chunks_ahead; ++chunk) {
      if (chunk < end) copies_.inputs(chunk, stage(chunk));
      end_copy_group();  // the first group includes all weights
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

}  // namespace
}  // namespace clover::kernels::cuda
