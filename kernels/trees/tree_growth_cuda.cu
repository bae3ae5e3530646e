#include "kernels/gpu/device.cuh"
#include "kernels/trees/tree_growth_call.h"

// One block, one warp for each tree. A level adds few nodes, each the best of the children that the lanes'
// cursors are at.
namespace clover::kernels {
using namespace cuda;
using namespace growth;
namespace {

constexpr int64_t most_warps = 32;
constexpr int cursors_a_lane = 2;  // of the 64 live nodes that a tree may have

/// True for the lane that holds the largest of `mine`, and for no other; a lane that does not take part
/// counts as 0.
__device__ inline bool holds_most(uint32_t mine, bool takes_part) {
  const uint32_t part = takes_part ? mine : 0;
  const uint32_t most = __reduce_max_sync(all_lanes, part);
  return takes_part && part == most;
}

__device__ inline TreeState grow_tree(const GrowthCall& call, int64_t tree, const TreeState& last) {
  const int lane = threadIdx.x % warp_size;
  ChildCursor cursors[cursors_a_lane];
#pragma unroll
  for (int i = 0; i < cursors_a_lane; ++i) {
    const int32_t offset = lane + i * warp_size, node = last.first_live + offset;
    if (offset < last.live)
      cursors[i].begin(call, last, node, last.row + (call.one_row_a_tree ? 0 : offset),
                       joint_of(call, tree, node));
  }
  int32_t nodes = last.nodes;
  for (; nodes < last.most_nodes; ++nodes) {
    static_assert(cursors_a_lane == 2);
    ChildCursor& mine = cursors[0];
    if (cursors[1].has_child() && (!mine.has_child() || before(cursors[1], mine))) {
      const ChildCursor other = mine;
      mine = cursors[1];
      cursors[1] = other;
    }
    // The bits of a number that is not negative rise with it.
    const uint32_t rising = bits_as<uint32_t>(mine.joint) + 1;
    bool best = holds_most(rising, mine.has_child());
    if (__ballot_sync(all_lanes, best) == 0) break;
    best = holds_most(~static_cast<uint32_t>(mine.id), best);
    best = holds_most(~static_cast<uint32_t>(mine.node), best);
    if (!best) continue;
    const int64_t at = tree * call.nodes + nodes;
    call.tree_ids[at] = mine.id;
    call.tree_parent[at] = mine.node;
    call.tree_joint[at] = mine.joint;
    mine.next(call, last);
  }
  return after_level(last, nodes, call.most_live);
}

/// The sum of the first `count` of rows, in every lane.
__device__ inline int32_t sum_in_warp(const int32_t* rows, int64_t count) {
  int32_t sum = 0;
  for (int64_t i = threadIdx.x % warp_size; i < count; i += warp_size) sum += rows[i];
  for (int apart = warp_size / 2; apart > 0; apart /= 2) sum += __shfl_xor_sync(all_lanes, sum, apart);
  return sum;
}

__global__ void __launch_bounds__(most_warps* warp_size) grow_trees(GrowthCall call) {
  launch_dependents();
  wait_for_prior_kernel();
  int32_t* rows = shared_memory<int32_t>();  // [trees]
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size, warps = blockDim.x / warp_size;
  for (int64_t tree = warp; tree < call.trees; tree += warps) {
    TreeState state = call.states[tree];
    __syncwarp();  // all lanes have read it
    if (state.live > 0) {
      state = grow_tree(call, tree, state);
      if (lane == 0) call.states[tree] = state;
    }
    if (lane == 0) rows[tree] = rows_needed(state, call);
  }
  __syncthreads();
  for (int64_t tree = warp; tree < call.trees; tree += warps) {
    if (rows[tree] == 0) continue;
    TreeState state = call.states[tree];
    state.row = sum_in_warp(rows, tree);
    __syncwarp();  // all lanes have read what the first one writes
    for (int32_t i = lane; i < rows[tree]; i += warp_size) write_row(call, tree, state, i);
    if (lane == 0) call.states[tree].row = state.row;
  }
  const int32_t all = sum_in_warp(rows, call.trees);
  for (int64_t i = all + threadIdx.x; i < call.capacity; i += blockDim.x)
    call.next_rows[i] = call.next_rows[call.capacity + i] = 0;
  if (threadIdx.x == 0) *call.row_count = all;
}

}  // namespace

void run_on_gpu(const GrowthCall& call, const GpuContext& context) {
  const int64_t warps = call.trees < most_warps ? call.trees : most_warps;
  launch("grow_level", grow_trees, dim3(1), static_cast<int>(warps * warp_size),
         call.trees * static_cast<int64_t>(sizeof(int32_t)), context.stream, call);
}

}  // namespace clover::kernels
