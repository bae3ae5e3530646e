#pragma once

#include "kernels/device/linear_tile.h"

namespace clover::kernels::cuda {
namespace {

// Few rows: bound by reading weights, which go from memory to registers, in batches of steps: one is on its
// way while the other is multiplied.
constexpr int batch_steps = 4;

template <class T, int Tiles, bool Aligned>
class FewRows {
 public:
  struct Batch {
    uint32_t a[batch_steps][4];
    uint2 b[batch_steps][Tiles];
  };
  float sum[Tiles][4] = {};

  __device__ FewRows(const LinearCall& call, const Lane& lane, int64_t panel, int64_t first_row)
      : call_(call), lane_(lane), first_row_(first_row) {
    const KCut cut(call.inputs);
    weights_ = static_cast<const uint32_t*>(call.panels) + panel * cut.chunks * chunk_words +
               2 * lane.in_group * panel_outputs + 2 * lane.group;
    begin_ = 2 * static_cast<int>(cut.begin(lane.warp));
    end_ = 2 * static_cast<int>(cut.begin(lane.warp + 1));
  }
  __device__ int begin() const { return begin_; }
  __device__ int end() const { return end_; }

  /// Steps `first` .. of the panel that lie before the end.  Lane 4g + t: pairs 2t, 2t + 1, outputs 2g, 2g
  /// + 1.
  __device__ __forceinline__ void load_weights(int first, Batch& batch) const {
#pragma unroll
    for (int i = 0; i < batch_steps; ++i) {
      if (first + i >= end_) continue;
      const uint32_t* at = weights_ + int64_t{first + i} * step_words;
      const uint2 low = load_once(reinterpret_cast<const uint2*>(at));
      const uint2 high = load_once(reinterpret_cast<const uint2*>(at + panel_outputs));
      batch.a[i][0] = low.x, batch.a[i][1] = low.y, batch.a[i][2] = high.x, batch.a[i][3] = high.y;
    }
  }
  __device__ __forceinline__ void load_inputs(int first, Batch& batch) const {
#pragma unroll
    for (int i = 0; i < batch_steps; ++i) {
      if (first + i >= end_) continue;
#pragma unroll
      for (int tile = 0; tile < Tiles; ++tile)
        batch.b[i][tile] = inputs_of<T, Aligned>(call_, first_row_ + tile * 8 + lane_.group,
                                                 int64_t{16} * (first + i) + 4 * lane_.in_group);
    }
  }
  /// Multiplies the batch that begins at step `first`, and fetches the one after the next in its place.
  __device__ __forceinline__ void multiply(int first, Batch& batch) {
#pragma unroll
    for (int i = 0; i < batch_steps; ++i) {
      if (first + i >= end_) continue;
#pragma unroll
      for (int tile = 0; tile < Tiles; ++tile)
        multiply_add(sum[tile], batch.a[i], batch.b[i][tile].x, batch.b[i][tile].y, T{});
    }
    load_weights(first + 2 * batch_steps, batch);
    load_inputs(first + 2 * batch_steps, batch);
    __syncwarp();  // or the compiler puts these loads behind the other batch's products
  }

 private:
  const LinearCall& call_;
  const Lane& lane_;
  int64_t first_row_;
  const uint32_t* weights_;
  int begin_, end_;
};

/// A block a panel, a warp a segment of k.
template <class T, int Tiles, bool Aligned>
__global__ void __launch_bounds__(warp_size* KCut::segments) linear_few(LinearCall call) {
  __shared__ float part[KCut::segments][Tiles * 8][panel_outputs];
  const Lane lane;
  const int64_t panel = blockIdx.x, first_row = static_cast<int64_t>(blockIdx.y) * Tiles * 8;
  FewRows<T, Tiles, Aligned> rows(call, lane, panel, first_row);
  typename FewRows<T, Tiles, Aligned>::Batch even, odd;
  int step = rows.begin();
  let_next_begin();
  rows.load_weights(step, even);
  rows.load_weights(step + batch_steps, odd);
  wait_for_last();
  rows.load_inputs(step, even);
  rows.load_inputs(step + batch_steps, odd);
  for (; step < rows.end(); step += 2 * batch_steps) {
    rows.multiply(step, even);
    rows.multiply(step + batch_steps, odd);
  }
#pragma unroll
  for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      part[lane.warp][tile * 8 + 2 * lane.in_group + i % 2][2 * lane.group + i / 2] = rows.sum[tile][i];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < Tiles * 8 * panel_outputs / 2; i += blockDim.x) {
    const int row = i / (panel_outputs / 2), output = i % (panel_outputs / 2) * 2;
    float low = 0, high = 0;
    for (int segment = 0; segment < KCut::segments; ++segment) {
      low += part[segment][row][output];
      high += part[segment][row][output + 1];
    }
    store_pair(call, first_row + row, panel * panel_outputs + output, low, high);
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
