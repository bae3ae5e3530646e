#pragma once

#include "kernels/linear/linear_plan.h"
#include "kernels/rows/norm.cuh"

// The rows that the kernel `few` multiplies: as they are in memory, or normed by each thread block.
namespace clover::kernels::cuda {
namespace {

/// The rows of call.x.
template <class T>
struct GivenRows {
  static constexpr int ring_steps = 16;  // RingSteps of WeightRing (linear_few.cuh)
  static constexpr int min_blocks = 0;   // per multiprocessor, for __launch_bounds__; 0: no requirement
  const T* first;
  int64_t row_stride;  // elements

  __device__ GivenRows(const LinearCall& call, int64_t /*ring_bytes*/)
      : first(static_cast<const T*>(call.x)), row_stride(call.inputs) {}
  __device__ void prepare() const {}  // nothing to do
  __device__ static void keep_address_in_register(const T*& address) {
    keep_global_address_in_register(address);
  }
};

/// Rows normed into shared memory, with the bits of rms_norm. A row's squares are summed there by
/// norm_threads threads (kernels/rows/norm.cuh); a block has half as many, so each does the work of two: its
/// "halves". A stride is the norm_stride elements that all of them load at once. The norm's weight, which no
/// kernel of a pass writes, is loaded before the previous kernel has ended.
template <class T>
class NormedRows {
  static constexpr int threads = warp_size * KCut::segments, halves = norm_threads / threads;
  static_assert(halves * threads == norm_threads);
  // Strides of the norm's weight that are kept in registers; later ones are loaded for each row.
  static constexpr int held_strides = 2;
  static constexpr int at_once = 4;  // strides of x in flight

 public:
  // The rows take shared memory, so rings are smaller than with GivenRows, and as many blocks (six) fit.
  static constexpr int ring_steps = 12, min_blocks = 6;
  T* first;
  int64_t row_stride;

  /// The normed rows are in shared memory, behind the rings of weights, which take `ring_bytes` bytes.
  __device__ NormedRows(const LinearCall& call, int64_t ring_bytes)
      : first(reinterpret_cast<T*>(shared_memory<unsigned char>() + ring_bytes)),
        row_stride(normed_row_stride(call.inputs)),
        x_(static_cast<const float*>(call.x)),
        norm_(call.norm),
        eps_(call.norm_eps),
        rows_(static_cast<int>(call.rows)),
        width_(static_cast<int>(call.inputs)) {
#pragma unroll
    for (int stride = 0; stride < held_strides; ++stride)
      for (int half = 0; half < halves; ++half) held_[stride][half] = weight(stride, half);
  }

  /// Norms the rows, once the previous kernel has ended; all threads must call it.
  __device__ void prepare() const {
    __shared__ float squares[max_normed_rows][norm_warps];
    sum_squares(squares);
    __syncthreads();
    for (int row = 0; row < rows_; ++row) {
      Vec4<float> loaded[held_strides][halves];  // these loads run while the scale is computed
#pragma unroll
      for (int stride = 0; stride < held_strides; ++stride)
        for (int half = 0; half < halves; ++half) loaded[stride][half] = load_x(row, stride, half);
      float sum = 0;
      for (int warp = 0; warp < norm_warps; ++warp) sum += squares[row][warp];
      const float inverse = inverse_norm(sum, width_, eps_);
#pragma unroll
      for (int stride = 0; stride < held_strides; ++stride)
        for (int half = 0; half < halves; ++half)
          store(row, stride, half, scaled(loaded[stride][half], inverse, held_[stride][half]));
      for (int stride = held_strides; stride < strides(); ++stride)
        for (int half = 0; half < halves; ++half)
          store(row, stride, half, scaled(load_x(row, stride, half), inverse, weight(stride, half)));
    }
    __syncthreads();
  }
  __device__ static void keep_address_in_register(const T*& address) {
    keep_shared_address_in_register(address);
  }

 private:
  __device__ int strides() const {
    return (width_ + norm_stride - 1) / norm_stride;
  }
  /// First of the four elements of stride `stride` that half `half` of this thread has.
  __device__ static int place(int stride, int half) {
    return 4 * (static_cast<int>(threadIdx.x) + half * threads) + stride * norm_stride;
  }
  __device__ Vec4<float> load_x(int row, int stride, int half) const {
    return load_vec4<true>(x_ + int64_t{row} * width_, place(stride, half), width_);
  }
  __device__ Vec4<float> weight(int stride, int half) const {
    return load_vec4<true>(norm_, place(stride, half), width_);
  }
  __device__ void store(int row, int stride, int half, const Vec4<float>& normed) const {
    store_vec4<true>(normed, first + row * row_stride, place(stride, half), width_);
  }

  /// Goes through the strides of all rows.
  struct Walk {
    int row = 0, stride = 0;
    __device__ void advance(int strides) {
      if (++stride == strides) stride = 0, ++row;
    }
  };

  /// Writes the sum of squares of each warp of norm_threads threads, for each row. Several strides are in
  /// flight at once, of more than one row if rows are short.
  __device__ void sum_squares(float (&squares)[max_normed_rows][norm_warps]) const {
    const int warp = threadIdx.x / warp_size;
    float sum[halves] = {};
    for (Walk added; added.row < rows_;) {
      Walk read = added;
      Vec4<float> loaded[at_once][halves];
#pragma unroll
      for (int i = 0; i < at_once; ++i, read.advance(strides()))
        for (int half = 0; half < halves; ++half)
          loaded[i][half] = read.row < rows_ ? load_x(read.row, read.stride, half) : Vec4<float>{};
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        if (added.row == rows_) break;
        for (int half = 0; half < halves; ++half) sum[half] += sum_of_squares(loaded[i][half]);
        if (added.stride == strides() - 1) {
          for (int half = 0; half < halves; ++half) {
            const float warp_squares = warp_sum(sum[half]);
            if (threadIdx.x % warp_size == 0)
              squares[added.row][warp + half * (threads / warp_size)] = warp_squares;
            sum[half] = 0;
          }
        }
        added.advance(strides());
      }
    }
  }

  const float *x_, *norm_;
  float eps_;
  int rows_, width_;
  Vec4<float> held_[held_strides][halves];
};

}  // namespace
}  // namespace clover::kernels::cuda
