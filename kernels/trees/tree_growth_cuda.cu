#include "kernels/gpu/device.cuh"
#include "kernels/trees/tree_growth_call.h"

// One block, one warp for each tree. Each lane holds the cursors of up to two live nodes. A level adds its
// nodes one by one: each is the best of the cursors' present candidates.
namespace clover::kernels {
using namespace cuda;
using namespace growth;
namespace {

constexpr int64_t max_warps = 32;
constexpr int cursors_per_lane = 2;  // for the 64 live nodes that a tree may have

/// True in the lanes that take part and hold the largest of their values; `mine` must be above 0.
__device__ inline bool holds_max(uint32_t mine, bool takes_part) {
  const uint32_t value = takes_part ? mine : 0;
  const uint32_t largest = __reduce_max_sync(all_lanes, value);
  return takes_part && value == largest;
}

/// An integer above 0 with the same order as scores.
__device__ inline uint32_t ordered_bits(float score) {
  const uint32_t bits = bits_as<uint32_t>(score);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__device__ inline int32_t sum_of_lanes(int32_t mine) {
  for (int lane_distance = warp_size / 2; lane_distance > 0; lane_distance /= 2)
    mine += __shfl_xor_sync(all_lanes, mine, lane_distance);
  return mine;
}

/// As in tree_growth_cpu.cc; `score` is ordered_bits of the score.
__device__ inline bool among_best(const GrowthCall& call, int64_t tree, const TreeState& previous,
                                  int32_t nodes, uint32_t score) {
  if (!call.rule.best_so_far || nodes < previous.max_kept) return true;
  int32_t better = 0;
  for (int32_t node = 1 + threadIdx.x % warp_size; node < previous.nodes; node += warp_size)
    better += ordered_bits(call.tree_score[tree * call.node_capacity + node]) >= score ? 1 : 0;
  return 1 + sum_of_lanes(better) + (nodes - previous.nodes) < previous.max_kept;
}

/// Adds a level to a tree without a plan; returns the new state.
__device__ inline TreeState grow_ranked(const GrowthCall& call, int64_t tree, const TreeState& previous) {
  const int lane = threadIdx.x % warp_size;
  CandidateCursor cursors[cursors_per_lane];
#pragma unroll
  for (int i = 0; i < cursors_per_lane; ++i) {
    const int32_t offset = lane + i * warp_size, node = previous.first_live + offset;
    if (offset < previous.live)
      cursors[i].begin(call, previous, node, previous.guess_row + (call.rule.one_row_per_tree ? 0 : offset),
                       score_of_node(call, tree, node));
  }
  int32_t nodes = previous.nodes;
  for (const int32_t limit = max_nodes_after_level(call, previous); nodes < limit; ++nodes) {
    static_assert(cursors_per_lane == 2);
    CandidateCursor& mine = cursors[0];
    if (cursors[1].has_candidate() && (!mine.has_candidate() || before(call.rule, cursors[1], mine))) {
      const CandidateCursor other = mine;
      mine = cursors[1];
      cursors[1] = other;
    }
    const uint32_t score = mine.has_candidate() ? ordered_bits(mine.score) : 0;
    const uint32_t highest = __reduce_max_sync(all_lanes, score);
    if (highest == 0 || !among_best(call, tree, previous, nodes, highest)) break;
    bool best = score == highest;
    if (!call.rule.by_log_probability) best = holds_max(~static_cast<uint32_t>(mine.id), best);
    best = holds_max(~static_cast<uint32_t>(mine.parent), best);
    if (!best) continue;
    const int64_t at = tree * call.node_capacity + nodes;
    call.tree_ids[at] = mine.id;
    call.tree_parent[at] = mine.parent;
    call.tree_score[at] = mine.score;
    mine.next(call, previous);
  }
  return after_ranked_level(call, previous, nodes);
}

/// Adds a level to a tree with a plan, 32 nodes at a time; returns the new state.
__device__ inline TreeState grow_planned(const GrowthCall& call, int64_t tree, const TreeState& previous) {
  int32_t nodes = previous.nodes, live = 0;
  for (;;) {
    const int32_t node = nodes + threadIdx.x % warp_size;
    const bool added = in_next_level(call, tree, previous, node);
    if (added) live += add_planned(call, tree, previous, node);
    const int32_t added_count = count_bits(__ballot_sync(all_lanes, added));
    nodes += added_count;
    if (added_count < warp_size) break;
  }
  return after_level(previous, nodes, sum_of_lanes(live));
}

/// Every lane gets the sum of rows[0 .. count).
__device__ inline int32_t sum_in_warp(const int32_t* rows, int64_t count) {
  int32_t sum = 0;
  for (int64_t i = threadIdx.x % warp_size; i < count; i += warp_size) sum += rows[i];
  return sum_of_lanes(sum);
}

/// grow_level, in one thread block: first all trees grow, then their rows are placed in next_rows.
__global__ void __launch_bounds__(max_warps* warp_size) grow_trees(GrowthCall call) {
  launch_dependents();
  wait_for_prior_kernel();
  int32_t* rows = shared_memory<int32_t>();  // [trees] rows_needed of each tree
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
    __syncwarp();  // all lanes have read states[tree], which lane 0 writes below
    for (int32_t i = lane; i < nodes_to_request(call, state); i += warp_size)
      request_guesses(call, tree, state, i);
    if (lane == 0) call.states[tree].guess_row = state.guess_row;
  }
  const int32_t total_rows = sum_in_warp(rows, call.trees);
  for (int64_t i = total_rows + threadIdx.x; i < call.next_row_capacity; i += blockDim.x)
    call.next_rows[i] = call.next_rows[call.next_row_capacity + i] = 0;
  if (threadIdx.x == 0) *call.row_count = total_rows;
}

}  // namespace

void run_on_gpu(const GrowthCall& call, const GpuContext& context) {
  const int64_t warps = call.trees < max_warps ? call.trees : max_warps;
  launch("grow_level", grow_trees, dim3(1), static_cast<int>(warps * warp_size),
         call.trees * static_cast<int64_t>(sizeof(int32_t)), context.stream, call);
}

}  // namespace clover::kernels
