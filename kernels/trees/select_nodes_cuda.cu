#include "kernels/gpu/device.cuh"
#include "kernels/trees/select_nodes_call.h"

namespace clover::kernels {
using namespace cuda;
namespace {

/// Marks, in shared memory, the nodes on a path to the last level, or all.
__device__ inline void mark(const SelectCall& call, const int32_t* parent, const TreeState& tree,
                            int32_t* marks) {
  for (int32_t node = threadIdx.x; node < tree.nodes; node += warp_size)
    marks[node] = node == 0 || !call.rule.paths_to_last_level ? 1 : 0;
  __syncwarp();
  if (call.rule.paths_to_last_level)
    for (int32_t last = tree.first_live + threadIdx.x; last < tree.nodes; last += warp_size)
      for (int32_t node = last; node > 0 && marks[node] == 0; node = parent[node]) marks[node] = 1;
  __syncwarp();
}

__device__ inline int32_t count_marks(const TreeState& tree, const int32_t* marks) {
  int32_t count = 0;
  for (int32_t first = 0; first < tree.nodes; first += warp_size) {
    const int32_t node = first + threadIdx.x;
    count += count_bits(__ballot_sync(all_lanes, node < tree.nodes && marks[node] != 0));
  }
  return count;
}

/// Leaves the `most` best of the marked nodes, the root among them; `left` is room for other marks.
__device__ inline void cut(const float* score, const TreeState& tree, int32_t most, int32_t* marks,
                           int32_t* left) {
  if (count_marks(tree, marks) <= most) return;
  for (int32_t node = threadIdx.x; node < tree.nodes; node += warp_size) {
    int32_t better = 1;  // the root
    for (int32_t other = 1; other < tree.nodes && node > 0 && marks[node] != 0; ++other)
      better +=
          marks[other] != 0 && (score[other] > score[node] || (score[other] == score[node] && other < node))
              ? 1
              : 0;
    left[node] = node == 0 || (marks[node] != 0 && better < most) ? 1 : 0;
  }
  __syncwarp();
  for (int32_t node = threadIdx.x; node < tree.nodes; node += warp_size) marks[node] = left[node];
  __syncwarp();
}

/// One warp for each tree.
__global__ void __launch_bounds__(warp_size) select_kept_nodes(SelectCall call) {
  launch_dependents();
  wait_for_prior_kernel();
  int32_t* marks = shared_memory<int32_t>();  // [nodes]
  int32_t* places = marks + call.nodes;       // [nodes]
  const int64_t tree = blockIdx.x;
  const TreeState state = call.states[tree];
  const int32_t* parent = call.parent + tree * call.nodes;
  mark(call, parent, state, marks);
  cut(call.score + tree * call.nodes, state, select::most_kept(call, state), marks, places);
  int32_t count = 0;
  for (int32_t first = 0; first < state.nodes; first += warp_size) {
    const int32_t node = first + threadIdx.x;
    const bool kept = node < state.nodes && marks[node] != 0;
    const unsigned together = __ballot_sync(all_lanes, kept);
    const int32_t place = count + count_bits(together & ((1u << threadIdx.x) - 1));
    if (kept) places[node] = place;
    __syncwarp();  // the parent may be one of these
    if (kept && node > 0) select::keep(call, tree, node, place, places[parent[node]]);
    count += count_bits(together);
  }
  if (threadIdx.x == 0) call.kept_states[tree] = select::after(state, count);
}

}  // namespace

void run_on_gpu(const SelectCall& call, const GpuContext& context) {
  launch("select_nodes", select_kept_nodes, dim3(static_cast<unsigned>(call.trees)), warp_size,
         2 * call.nodes * static_cast<int64_t>(sizeof(int32_t)), context.stream, call);
}

}  // namespace clover::kernels
