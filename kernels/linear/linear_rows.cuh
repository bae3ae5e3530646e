#pragma once

#include "kernels/linear/linear_plan.h"
#include "kernels/rows/norm.cuh"

// The rows that the kernel for few rows multiplies: as they are, or normed by each block.
namespace clover::kernels::cuda {
namespace {

template <class T>
struct GivenRows {
  static constexpr int ring_steps = 16, least_blocks = 0;  // as many as there is room for
  const T* first;
  int64_t apart;

  __device__ GivenRows(const LinearCall& call, int64_t /*rings*/)
      : first(static_cast<const T*>(call.x)), apart(call.inputs) {}
  __device__ void make() const {}
  __device__ static void keep(const T*& address) { keep_global(address); }
};

/// Rows normed into shared memory by a block that has half as many threads as sum the squares of a row in
/// norm.cuh, so that each thread stands for two. The weight, which no kernel of a pass writes, is loaded from
/// before the kernel ahead has ended.
template <class T>
class NormedRows {
  static constexpr int threads = warp_size * KCut::segments, halves = norm_threads / threads;
  static_assert(halves * threads == norm_threads);
  static constexpr int held_strides = 2;  // of the weight; what a wider one has comes when it is needed
  static constexpr int at_once = 4;       // strides of x

 public:
  // Six blocks share a multiprocessor, as with given rows, so each has fewer loads in flight.
  static constexpr int ring_steps = 12, least_blocks = 6;
  T* first;
  int64_t apart;

  /// The rows lie in shared memory behind `rings` bytes.
  __device__ NormedRows(const LinearCall& call, int64_t rings)
      : first(reinterpret_cast<T*>(shared_memory<unsigned char>() + rings)),
        apart(normed_rows_apart(call.inputs)),
        x_(static_cast<const float*>(call.x)),
        norm_(call.norm),
        eps_(call.norm_eps),
        rows_(static_cast<int>(call.rows)),
        width_(static_cast<int>(call.inputs)) {
#pragma unroll
    for (int step = 0; step < held_strides; ++step)
      for (int half = 0; half < halves; ++half) held_[step][half] = weight(step, half);
  }

  /// Norms the rows, after the kernel ahead has ended; all threads must call it.
  __device__ void make() const {
    __shared__ float squares[most_normed_rows][norm_warps];
    sum_squares(squares);
    __syncthreads();
    for (int row = 0; row < rows_; ++row) {
      Vec4<float> loaded[held_strides][halves];  // on their way while the sum is turned into a scale
#pragma unroll
      for (int step = 0; step < held_strides; ++step)
        for (int half = 0; half < halves; ++half) loaded[step][half] = of_x(row, step, half);
      float sum = 0;
      for (int warp = 0; warp < norm_warps; ++warp) sum += squares[row][warp];
      const float inverse = inverse_norm(sum, width_, eps_);
#pragma unroll
      for (int step = 0; step < held_strides; ++step)
        for (int half = 0; half < halves; ++half)
          store(row, step, half, scaled(loaded[step][half], inverse, held_[step][half]));
      for (int step = held_strides; step < strides(); ++step)
        for (int half = 0; half < halves; ++half)
          store(row, step, half, scaled(of_x(row, step, half), inverse, weight(step, half)));
    }
    __syncthreads();
  }
  __device__ static void keep(const T*& address) {
    keep_shared(address);
  }

 private:
  __device__ int strides() const {
    return (width_ + norm_stride - 1) / norm_stride;
  }
  __device__ static int place(int step, int half) {
    return 4 * (static_cast<int>(threadIdx.x) + half * threads) + step * norm_stride;
  }
  __device__ Vec4<float> of_x(int row, int step, int half) const {
    return load_vec4<true>(x_ + int64_t{row} * width_, place(step, half), width_);
  }
  __device__ Vec4<float> weight(int step, int half) const {
    return load_vec4<true>(norm_, place(step, half), width_);
  }
  __device__ void store(int row, int step, int half, const Vec4<float>& normed) const {
    store_vec4<true>(normed, first + row * apart, place(step, half), width_);
  }

  /// A stride of a row after the other.
  struct Walk {
    int row = 0, step = 0;
    __device__ void on(int strides) {
      if (++step == strides) step = 0, ++row;
    }
  };

  /// Of each row as 256 threads sum them; several strides are under way at once, of several rows if need be.
  __device__ void sum_squares(float (&squares)[most_normed_rows][norm_warps]) const {
    const int warp = threadIdx.x / warp_size;
    float sum[halves] = {};
    for (Walk added; added.row < rows_;) {
      Walk read = added;
      Vec4<float> loaded[at_once][halves];
#pragma unroll
      for (int i = 0; i < at_once; ++i, read.on(strides()))
        for (int half = 0; half < halves; ++half)
          loaded[i][half] = read.row < rows_ ? of_x(read.row, read.step, half) : Vec4<float>{};
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        if (added.row == rows_) break;
        for (int half = 0; half < halves; ++half) sum[half] += sum_of_squares(loaded[i][half]);
        if (added.step == strides() - 1) {
          for (int half = 0; half < halves; ++half) {
            const float of_warp = warp_sum(sum[half]);
            if (threadIdx.x % warp_size == 0)
              squares[added.row][warp + half * (threads / warp_size)] = of_warp;
            sum[half] = 0;
          }
        }
        added.on(strides());
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
