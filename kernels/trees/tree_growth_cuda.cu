#include "kernels/gpu/device.cuh"
#include "kernels/trees/tree_growth_call.h"

// One block, one warp for each tree. A level adds few nodes, each the best of the candidates that the lanes'
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

/// A number above 0 that rises with a score.
__device__ inline uint32_t rising(float score) {
  const uint32_t bits = bits_as<uint32_t>(score);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__device__ inline int32_t sum_of_lanes(int32_t mine) {
  for (int apart = warp_size / 2; apart > 0; apart /= 2) mine += __shfl_xor_sync(all_lanes, mine, apart);
  return mine;
}

/// See tree_growth_cpu.cc; `score` as `rising` gives it.
__device__ inline bool among_best(const GrowthCall& call, int64_t tree, const TreeState& previous,
                                  int32_t nodes, uint32_t score) {
  if (!call.rule.best_so_far || nodes < previous.most_kept) return true;
  int32_t better = 0;
  for (int32_t node = 1 + threadIdx.x % warp_size; node < previous.nodes; node += warp_size)
    better += rising(call.tree_score[tree * call.node_room + node]) >= score ? 1 : 0;
  return 1 + sum_of_lanes(better) + (nodes - previous.nodes) < previous.most_kept;
}

__device__ inline TreeState grow_ranked(const GrowthCall& call, int64_t tree, const TreeState& previous) {
  const int lane = threadIdx.x % warp_size;
  CandidateCursor cursors[cursors_a_lane];
#pragma unroll
  for (int i = 0; i < cursors_a_lane; ++i) {
    const int32_t offset = lane + i * warp_size, node = previous.first_live + offset;
    if (offset < previous.live)
      cursors[i].begin(call, previous, node, previous.guess_row + (call.rule.one_row_a_tree ? 0 : offset),
                       score_of_node(call, tree, node));
  }
  int32_t nodes = previous.nodes;
  for (const int32_t most = most_after_level(call, previous); nodes < most; ++nodes) {
    static_assert(cursors_a_lane == 2);
    CandidateCursor& mine = cursors[0];
    if (cursors[1].has_candidate() && (!mine.has_candidate() || before(call.rule, cursors[1], mine))) {
      const CandidateCursor other = mine;
      mine = cursors[1];
      cursors[1] = other;
    }
    const uint32_t score = mine.has_candidate() ? rising(mine.score) : 0;
    const uint32_t highest = __reduce_max_sync(all_lanes, score);
    if (highest == 0 || !among_best(call, tree, previous, nodes, highest)) break;
    bool best = score == highest;
    if (!call.rule.by_log_probability) best = holds_most(~static_cast<uint32_t>(mine.id), best);
    best = holds_most(~static_cast<uint32_t>(mine.parent), best);
    if (!best) continue;
    const int64_t at = tree * call.node_room + nodes;
    call.tree_ids[at] = mine.id;
    call.tree_parent[at] = mine.parent;
    call.tree_score[at] = mine.score;
    mine.next(call, previous);
  }
  return after_ranked_level(call, previous, nodes);
}

/// Each lane adds a node.
__device__ inline TreeState grow_planned(const GrowthCall& call, int64_t tree, const TreeState& previous) {
  int32_t nodes = previous.nodes, live = 0;
  for (;;) {
    const int32_t node = nodes + threadIdx.x % warp_size;
    const bool added = in_next_level(call, tree, previous, node);
    if (added) live += add_planned(call, tree, previous, node);
    const int32_t together = count_bits(__ballot_sync(all_lanes, added));
    nodes += together;
    if (together < warp_size) break;
  }
  return after_level(previous, nodes, sum_of_lanes(live));
}

/// The sum of the first `count` of rows, in every lane.
__device__ inline int32_t sum_in_warp(const int32_t* rows, int64_t count) {
  int32_t sum = 0;
  for (int64_t i = threadIdx.x % warp_size; i < count; i += warp_size) sum += rows[i];
  return sum_of_lanes(sum);
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
      state = call.plans ? grow_planned(call, tree, state) : grow_ranked(call, tree, state);
      if (lane == 0) call.states[tree] = state;
    }
    if (lane == 0) rows[tree] = rows_needed(call, state);
  }
  __syncthreads();
  for (int64_t tree = warp; tree < call.trees; tree += warps) {
    if (rows[tree] == 0) continue;
    TreeState state = call.states[tree];
    state.guess_row = sum_in_warp(rows, tree);
    __syncwarp();  // all lanes have read what the first one writes
    for (int32_t i = lane; i < nodes_to_request(call, state); i += warp_size)
      request_guesses(call, tree, state, i);
    if (lane == 0) call.states[tree].guess_row = state.guess_row;
  }
  const int32_t all = sum_in_warp(rows, call.trees);
  for (int64_t i = all + threadIdx.x; i < call.next_row_room; i += blockDim.x)
    call.next_rows[i] = call.next_rows[call.next_row_room + i] = 0;
  if (threadIdx.x == 0) *call.row_count = all;
}

}  // namespace

void run_on_gpu(const GrowthCall& call, const GpuContext& context) {
  const int64_t warps = call.trees < most_warps ? call.trees : most_warps;
  launch("grow_level", grow_trees, dim3(1), static_cast<int>(warps * warp_size),
         call.trees * static_cast<int64_t>(sizeof(int32_t)), context.stream, call);
}

}  // namespace clover::kernels
