#pragma once

#include "kernels/linear/linear_cluster_ring.cuh"

// Adds the sums of a cluster's blocks and applies the epilogue (linear_clusters.cuh).
namespace clover::kernels::cuda {
namespace {

/// What the epilogue of a thread's two rows of a tile of eight reads besides their sums; it is loaded before
/// the cluster's barrier.
template <Epilogue End>
struct BesideRows {
  BesidePair beside[2];
  float2 start[2] = {};

  __device__ __forceinline__ void read(const LinearCall& call, int64_t row, const OutputPair& pair) {
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      if (End == Epilogue::rope_and_store) beside[odd] = read_beside(call, row + odd, pair);
      if (End != Epilogue::store || row + odd >= call.rows || pair.output >= call.outputs) continue;
      const float* from = call.accumulate ? call.y + (row + odd) * call.outputs : call.bias;
      if (from != nullptr) start[odd] = *reinterpret_cast<const float2*>(from + pair.output);
    }
  }

  /// sum: of the even row's pair, then of the odd one's.
  __device__ __forceinline__ void store(const LinearCall& call, int64_t row, const OutputPair& pair,
                                        const float2 (&sum)[2]) const {
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      if (End == Epilogue::best) {
        store_best(call, row + odd, pair.output, sum[odd].x, sum[odd].y, PairLanes::groups);
      } else if (End == Epilogue::store) {
        if (row + odd >= call.rows || pair.output >= call.outputs) continue;
        float2 to = sum[odd];
        if (call.accumulate || call.bias != nullptr) to = {start[odd].x + to.x, start[odd].y + to.y};
        *reinterpret_cast<float2*>(call.y + (row + odd) * call.outputs + pair.output) = to;
      } else {
        store_pair(call, row + odd, pair, sum[odd].x, sum[odd].y, beside[odd]);
      }
    }
  }
};

/// A thread's sums of eight rows from all blocks of the cluster, added in the order of k: of the even row's
/// pair, then of the odd one's.
__device__ __forceinline__ void add_segments(const float4* own, float2 (&sum)[2]) {
  float4 part[KCut::segments];
#pragma unroll
  for (int segment = 0; segment < KCut::segments; ++segment) part[segment] = read_of_block(own, segment);
  sum[0] = sum[1] = {0, 0};
#pragma unroll
  for (int segment = 0; segment < KCut::segments; ++segment) {
    sum[0].x += part[segment].x, sum[0].y += part[segment].z;
    sum[1].x += part[segment].y, sum[1].y += part[segment].w;
  }
}

/// Each block of the cluster adds up and stores every fourth group of eight rows of the tile, whose partial
/// sums lie in the shared memory of all blocks. A batch of groups at a time loads what their epilogue reads.
template <int Tiles, Epilogue End>
class TileStore {
  static constexpr int own_tiles = (Tiles + KCut::segments - 1) / KCut::segments;
  static constexpr int batch = own_tiles <= 5 ? own_tiles : own_tiles / 2, batches = own_tiles / batch;
  static_assert(batch * batches == own_tiles);

 public:
  __device__ TileStore(const LinearCall& call, const ClusterRoom<Tiles>& room, const ClusterTile& tile)
      : call_(call), sums_(room.sums() + threadIdx.x), tile_(tile) {
    const Lane lane;
    pair_ = OutputPair::of(call, (tile.first_panel + lane.warp) * panel_outputs + 2 * lane.group);
    row_ = tile.first_row + 2 * lane.in_group;
  }

  __device__ __forceinline__ void run(const float (&sum)[Tiles][4]) {
#pragma unroll
    for (int i = 0; i < Tiles; ++i)
      sums_[i * ClusterPlan::threads] = {sum[i][0], sum[i][1], sum[i][2], sum[i][3]};
    arrive_at_cluster();
    BesideRows<End> beside[batch];
    read_beside_rows(0, beside);
    wait_for_cluster();
    store_batch(0, beside);
    if (batches == 1) return;
    read_beside_rows(batch, beside);
    store_batch(batch, beside);
  }

 private:
  /// Number of the i-th eight rows.
  __device__ static int eight(int i) {
    return static_cast<int>(blockIdx.x % KCut::segments) + i * KCut::segments;
  }

  __device__ __forceinline__ void read_beside_rows(int first, BesideRows<End> (&beside)[batch]) const {
#pragma unroll
    for (int i = 0; i < batch; ++i) beside[i].read(call_, row_ + 8 * eight(first + i), pair_);
  }
  __device__ __forceinline__ void store_batch(int first, const BesideRows<End> (&beside)[batch]) const {
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int own = eight(first + i);
      if (own >= Tiles || tile_.first_row + 8 * own >= call_.rows) return;  // all of the block alike
      float2 total[2];
      add_segments(sums_ + own * ClusterPlan::threads, total);
      beside[i].store(call_, row_ + 8 * own, pair_, total);
    }
  }

  const LinearCall& call_;
  float4* const sums_;  // [tiles, threads]
  const ClusterTile& tile_;
  OutputPair pair_{};
  int64_t row_;
};

}  // namespace
}  // namespace clover::kernels::cuda
