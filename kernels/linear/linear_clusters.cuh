#pragma once

#include "kernels/linear/linear_cluster_ring.cuh"
#include "kernels/linear/linear_cluster_sums.cuh"
#include "kernels/linear/linear_launch.h"

// Kernel `clusters`: products of many rows with wgmma (sm_90). A cluster of four thread blocks computes a
// cluster tile of 128 outputs by up to 256 rows, each thread block one of the four segments of k (KCut in
// linear_plan.h); the segments' sums are then added in order through distributed shared memory. One thread of
// each block issues the copies of weights and rows to a ring of stages, the first weights even before the
// previous kernel has ended. mbarriers pass stages between that thread and the consumer warps.
namespace clover::kernels::cuda {
namespace {

template <class T>
constexpr Element element_of = std::is_same_v<T, Bf16> ? Element::bf16 : Element::fp16;

/// `Tiles`: tiles of 8 rows in a cluster tile. `End`: the epilogue. `stages`: of the ring. `row_tiles`:
/// cluster tiles with the same outputs; `tiles`: all cluster tiles.
template <class T, int Tiles, Epilogue End>
__global__ void __cluster_dims__(KCut::segments, 1, 1)
    __launch_bounds__(ClusterPlan::threads, ClusterPlan::blocks_per_multiprocessor(8 * Tiles))
        linear_clusters(LinearCall call, int stages, int row_tiles, int tiles,
                        const __grid_constant__ TensorMap weights, const __grid_constant__ TensorMap rows) {
  // Assigning constants lets the compiler remove the code of other epilogues.
  call.epilogue = End;
  call.element = element_of<T>;
  launch_dependents();
  const ClusterSharedMemory<Tiles> memory(stages);
  if (threadIdx.x == 0) memory.init_barriers();
  __syncthreads();
  const Segment segment(KCut(call.inputs), blockIdx.x % KCut::segments);
  const ClusterCopies<Tiles> copies(segment, memory, weights, rows);
  ClusterProducts<T, Tiles> products(segment, memory, copies);
  const int first = blockIdx.x / KCut::segments, clusters = gridDim.x / KCut::segments;
  if (threadIdx.x == 0) copies.begin_first(ClusterTile(first, row_tiles, 8 * Tiles));
  wait_for_prior_kernel();
#pragma unroll 1
  for (int number = first;;) {
    const ClusterTile tile(number, row_tiles, 8 * Tiles);
    float sum[Tiles][4] = {};
    products.sum_segment(tile, sum);
    __syncthreads();  // the ring has been read
    TileStore<Tiles, End>(call, memory, tile).run(sum);
    // Other blocks may still read this block's sums, which lie where the ring was.
    arrive_at_cluster_relaxed();
    wait_for_cluster();
    number += clusters;
    if (number >= tiles) return;
    if (threadIdx.x == 0) copies.begin(ClusterTile(number, row_tiles, 8 * Tiles), products.next_stage());
  }
}

template <class T, int Tiles, Epilogue End>
void launch_product(const LinearCall& call, const ClusterPlan& plan, Stream stream) {
  const TensorMap rows = map_of_rows("linear", call.x, call.rows, call.inputs,
                                     call.inputs * static_cast<int64_t>(sizeof(T)), 8 * Tiles),
                  weights = map_of_bytes("linear", call.panels, panels_of(call.outputs),
                                         KCut(call.inputs).chunks * chunk_words * 4,
                                         ClusterSharedMemory<Tiles>::panel_words * 4, ClusterPlan::panels);
  const auto kernel = linear_clusters<T, Tiles, End>;
  const int row_tiles = static_cast<int>(plan.row_tiles(call)),
            tiles = row_tiles * static_cast<int>(plan.output_tiles(call));
  // With one block per multiprocessor, each cluster computes several tiles, which saves launches.
  const int concurrent_clusters =
      ClusterPlan::blocks_per_multiprocessor(8 * Tiles) > 1
          ? tiles
          : max_active_clusters<KCut::segments>(kernel, ClusterPlan::threads, plan.shared_bytes());
  launch_clusters<KCut::segments>(
      "linear", kernel, dim3(KCut::segments * std::min(tiles, concurrent_clusters)), ClusterPlan::threads,
      plan.shared_bytes(), stream, call, plan.stages, row_tiles, tiles, weights, rows);
}

template <class T, int Tiles>
void launch_product(const LinearCall& call, const ClusterPlan& plan, Stream stream) {
  with_epilogue(call, [&](auto end) { launch_product<T, Tiles, decltype(end)::value>(call, plan, stream); });
}

}  // namespace
}  // namespace clover::kernels::cuda
