#include "kernels/gpu/device.cuh"
#include "kernels/trees/select_nodes_call.h"

namespace clover::kernels {
using namespace cuda;
namespace {

/// Marks the root and the nodes of call.rule: those on a path to the last level, or all.
__device__ inline void mark(const SelectCall& call, const int32_t* parent, const TreeState& state,
                            int32_t* marks) {
  for (int32_t node = threadIdx.x; node < state.nodes; node += warp_size)
    marks[node] = node == 0 || !call.rule.paths_to_last_level ? 1 : 0;
  __syncwarp();
  if (call.rule.paths_to_last_level)
    for (int32_t last = state.first_live + threadIdx.x; last < state.nodes; last += warp_size)
      for (int32_t node = last; node > 0 && marks[node] == 0; node = parent[node]) marks[node] = 1;
  __syncwarp();
}

__device__ inline int32_t count_marks(const TreeState& state, const int32_t* marks) {
  int32_t count = 0;
  for (int32_t first = 0; first < state.nodes; first += warp_size) {
    const int32_t node = first + threadIdx.x;
    count += count_bits(__ballot_sync(all_lanes, node < state.nodes && marks[node] != 0));
  }
  return count;
}

/// Unmarks all but the `limit` best of the marked nodes, the root included, which stays marked; `scratch` has
/// room for all nodes.
__device__ inline void unmark_worst(const float* score, const TreeState& state, int32_t limit, int32_t* marks,
                                    int32_t* scratch) {
  if (count_marks(state, marks) <= limit) return;
  for (int32_t node = threadIdx.x; node < state.nodes; node += warp_size) {
    int32_t better = 1;  // the root
    for (int32_t other = 1; other < state.nodes && node > 0 && marks[node] != 0; ++other)
      better +=
          marks[other] != 0 && (score[other] > score[node] || (score[other] == score[node] && other < node))
              ? 1
              : 0;
    scratch[node] = node == 0 || (marks[node] != 0 && better < limit) ? 1 : 0;
  }
  __syncwarp();
  for (int32_t node = threadIdx.x; node < state.nodes; node += warp_size) marks[node] = scratch[node];
  __syncwarp();
}

/// One warp for each tree.
__global__ void __launch_bounds__(warp_size) select_kept_nodes(SelectCall call) {
  launch_dependents();
  wait_for_prior_kernel();
  int32_t* marks = shared_memory<int32_t>();      // [node_capacity]
  int32_t* numbers = marks + call.node_capacity;  // [node_capacity] number of each kept node in the kept tree
  const int64_t tree = blockIdx.x;
  const TreeState state = call.states[tree];
  const int32_t* parent = call.parent + tree * call.node_capacity;
  mark(call, parent, state, marks);
  unmark_worst(call.score + tree * call.node_capacity, state, select::max_kept(call, state), marks, numbers);
  int32_t count = 0;
  for (int32_t first = 0; first < state.nodes; first += warp_size) {
    const int32_t node = first + threadIdx.x;
    const bool kept = node < state.nodes && marks[node] != 0;
    const unsigned kept_lanes = __ballot_sync(all_lanes, kept);
    const int32_t number = count + count_bits(kept_lanes & ((1u << threadIdx.x) - 1));
    if (kept) numbers[node] = number;
    __syncwarp();  // a node's parent may be among these 32 nodes
    if (kept && node > 0) select::keep(call, tree, node, number, numbers[parent[node]]);
    count += count_bits(kept_lanes);
  }
  if (threadIdx.x == 0) call.kept_states[tree] = select::state_of_kept(state, count);
}

}  // namespace

void run_on_gpu(const SelectCall& call, const GpuContext& context) {
  launch("select_nodes", select_kept_nodes, dim3(static_cast<unsigned>(call.trees)), warp_size,
         2 * call.node_capacity * static_cast<int64_t>(sizeof(int32_t)), context.stream, call);
}

}  // namespace clover::kernels
