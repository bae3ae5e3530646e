#pragma once

#include "kernels/linear/linear_tile.cuh"

// Products of many rows by mma.sync: the shape of a block's tile, and how its weights and inputs go through
// shared memory.
namespace clover::kernels::cuda {
namespace {

/// Words of a row of x in a chunk.
constexpr int row_words = 16;

/// Four warps side by side over the outputs of a block by two over its rows; chunks of weights and inputs are
/// staged through shared memory, several ahead.
template <int PanelsAWarp, int TilesAWarp, bool Split>
struct FlatShape {
  static constexpr int over_outputs = 4, over_rows = 2, blocks_a_multiprocessor = 2;
  static constexpr int panels_a_warp = PanelsAWarp, tiles_a_warp = TilesAWarp;
  static constexpr bool split = Split;
  static constexpr int threads = over_outputs * over_rows * warp_size;
  static constexpr int panels = over_outputs * panels_a_warp, rows = over_rows * tiles_a_warp * 8;
  static constexpr int sums = panels_a_warp * tiles_a_warp * 4;  // a thread
  using Sums = float[panels_a_warp][tiles_a_warp][4];
  // Totals of finished segments lie at the start of shared memory: registers hold the sums of one segment.
  static constexpr int total_words = split ? 0 : sums * threads;
  static constexpr int weight_words = panels * chunk_words, stage_words = weight_words + rows * row_words;
  // As many stages as let so many blocks share a multiprocessor of sm_90, up to what its memory bandwidth
  // needs in flight.
  static constexpr int room_words = 226 / blocks_a_multiprocessor * 256,
                       fitting = (room_words - total_words) / stage_words;
  static constexpr int stages = fitting < 8 ? fitting : 8;
  static constexpr int64_t bytes = (int64_t{stages} * stage_words + total_words) * 4;
};

/// What a thread copies of x to each stage: 16 bytes of every so many rows, zeros beyond the end.
/// `WordsApart`: rows lie in a stage.
template <class T, class Shape, int WordsApart>
class InputCopies {
 public:
  static constexpr int rows_at_once = Shape::threads / 4,
                       parts = (Shape::rows + rows_at_once - 1) / rows_at_once;

  /// Eight inputs from `input` of a chunk on, of row `row` of the block, to word `to` of a stage, and so on.
  __device__ InputCopies(const LinearCall& call, int64_t first_row, int row, int input, int to)
      : from_(static_cast<const T*>(call.x) + (first_row + row) * call.inputs + input),
        next_rows_(call.inputs * rows_at_once),
        row_(row),
        to_(to),
        rows_left_(static_cast<int>(call.rows - first_row) - row),
        chunks_left_((static_cast<int>(call.inputs) - input + 31) / 32) {
    keep_global(from_);
  }

  __device__ __forceinline__ void copy_part(int part, int chunk, uint32_t* stage) const {
    const int row = part * rows_at_once;
    if (Shape::rows % rows_at_once != 0 && row + row_ >= Shape::rows) return;
    copy_async(stage + to_ + row * WordsApart, from_ + part * next_rows_ + chunk * 32,
               chunk >= chunks_left_ || row >= rows_left_);
  }
  __device__ __forceinline__ void copy(int chunk, uint32_t* stage) const {
#pragma unroll
    for (int part = 0; part < parts; ++part) copy_part(part, chunk, stage);
  }

 private:
  const T* from_;
  int64_t next_rows_;
  int row_, to_, rows_left_, chunks_left_;
};

/// The pipeline of a block: its chunks go through the stages one after the other. Copies: what a thread
/// copies of each chunk to a stage, weights and inputs.
template <class Shape, class Copies>
class Stages {
 protected:
  /// Begins the copies of the first `ahead` chunks.
  __device__ Stages(const Copies& copies, int begin, int end, int ahead)
      : copies_(copies), begin_(begin), end_(end), chunk_(begin) {
    stages_ = shared_memory<uint32_t>() + Shape::total_words;
    for (int chunk = begin; chunk < begin + ahead; ++chunk)
      if (chunk < end) copies_.weights(chunk, stage(chunk));
    wait_for_prior_kernel();
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

}  // namespace
}  // namespace clover::kernels::cuda
