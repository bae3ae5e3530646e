#pragma once

#include "kernels/linear/linear_cluster_ring.cuh"

// Kernel `clusters`: adds the sums of a cluster's four thread blocks, one for each segment of k, and applies
// the epilogue (linear_clusters.cuh). A cluster tile has `Tiles` tiles of 8 rows. Of each tile a thread has
// the sums of two successive rows, an even and an odd one, by a pair of outputs.
namespace clover::kernels::cuda {
namespace {

/// What the epilogue `End` reads from memory for a thread's two rows of a tile. It is loaded before the
/// cluster's barrier.
template <Epilogue End>
struct RowOperands {
  PairOperands operands[2];
  float2 start[2] = {};  // of Epilogue::store: what the sums are added to, y or the bias

  __device__ __forceinline__ void read(const LinearCall& call, int64_t row, const OutputPair& pair) {
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      if (End == Epilogue::rope_and_store) operands[odd] = read_operands(call, row + odd, pair);
      if (End != Epilogue::store || row + odd >= call.rows || pair.output >= call.outputs) continue;
      const float* from = call.accumulate ? call.y + (row + odd) * call.outputs : call.bias;
      if (from != nullptr) start[odd] = *reinterpret_cast<const float2*>(from + pair.output);
    }
  }

  /// sum[0] is the pair of the even row, sum[1] that of the odd row.
  __device__ __forceinline__ void store(const LinearCall& call, int64_t row, const OutputPair& pair,
                                        const float2 (&sum)[2]) const {
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      if (End == Epilogue::arg_max) {
        store_arg_max(call, row + odd, pair.output, sum[odd].x, sum[odd].y, PairLanes::groups);
      } else if (End == Epilogue::store) {
        if (row + odd >= call.rows || pair.output >= call.outputs) continue;
        float2 to = sum[odd];
        if (call.accumulate || call.bias != nullptr) to = {start[odd].x + to.x, start[odd].y + to.y};
        *reinterpret_cast<float2*>(call.y + (row + odd) * call.outputs + pair.output) = to;
      } else {
        store_pair(call, row + odd, pair, sum[odd].x, sum[odd].y, operands[odd]);
      }
    }
  }
};

/// Adds a thread's sums of a tile of 8 rows from all thread blocks of the cluster, in the order of segments.
/// `own`: where this block's sums are in its shared memory; the other blocks have theirs at the same place.
/// sum[0] is the pair of the even row, sum[1] that of the odd row.
__device__ __forceinline__ void add_segments(const float4* own, float2 (&sum)[2]) {
  float4 segment_sums[KCut::segments];
#pragma unroll
  for (int segment = 0; segment < KCut::segments; ++segment)
    segment_sums[segment] = read_from_block(own, segment);
  sum[0] = sum[1] = {0, 0};
#pragma unroll
  for (int segment = 0; segment < KCut::segments; ++segment) {
    sum[0].x += segment_sums[segment].x, sum[0].y += segment_sums[segment].z;
    sum[1].x += segment_sums[segment].y, sum[1].y += segment_sums[segment].w;
  }
}

/// Stores the sums of a cluster tile: each thread block adds up and stores every fourth tile of 8 rows, whose
/// partial sums are in the shared memory of all four blocks. The operands of a batch of tiles are loaded at
/// once.
template <int Tiles, Epilogue End>
class TileStore {
  static constexpr int own_tiles = (Tiles + KCut::segments - 1) / KCut::segments;
  static constexpr int batch = own_tiles <= 5 ? own_tiles : own_tiles / 2, batches = own_tiles / batch;
  static_assert(batch * batches == own_tiles);

 public:
  __device__ TileStore(const LinearCall& call, const ClusterSharedMemory<Tiles>& memory,
                       const ClusterTile& tile)
      : call_(call), sums_(memory.sums() + threadIdx.x), tile_(tile) {
    const Lane lane;
    pair_ = OutputPair::of(call, (tile.first_panel + lane.warp) * panel_outputs + 2 * lane.group);
    row_ = tile.first_row + 2 * lane.in_group;
  }

  __device__ __forceinline__ void run(const float (&sum)[Tiles][4]) {
#pragma unroll
    for (int i = 0; i < Tiles; ++i)
      sums_[i * ClusterPlan::threads] = {sum[i][0], sum[i][1], sum[i][2], sum[i][3]};
    arrive_at_cluster();
    RowOperands<End> operands[batch];
    read_row_operands(0, operands);
    wait_for_cluster();
    store_batch(0, operands);
    if (batches == 1) return;
    read_row_operands(batch, operands);
    store_batch(batch, operands);
  }

 private:
  /// The number, in the cluster tile, of the i-th tile of 8 rows that this thread block stores.
  __device__ static int own_tile(int i) {
    return static_cast<int>(blockIdx.x % KCut::segments) + i * KCut::segments;
  }

  __device__ __forceinline__ void read_row_operands(int first, RowOperands<End> (&operands)[batch]) const {
#pragma unroll
    for (int i = 0; i < batch; ++i) operands[i].read(call_, row_ + 8 * own_tile(first + i), pair_);
  }
  __device__ __forceinline__ void store_batch(int first, const RowOperands<End> (&operands)[batch]) const {
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int number = own_tile(first + i);
      if (number >= Tiles || tile_.first_row + 8 * number >= call_.rows)
        return;  // in all threads of the block
      float2 total[2];
      add_segments(sums_ + number * ClusterPlan::threads, total);
      operands[i].store(call_, row_ + 8 * number, pair_, total);
    }
  }

  const LinearCall& call_;
  float4* const sums_;  // [tiles, threads]
  const ClusterTile& tile_;
  OutputPair pair_{};
  int64_t row_;  // even row of tile 0
};

}  // namespace
}  // namespace clover::kernels::cuda
