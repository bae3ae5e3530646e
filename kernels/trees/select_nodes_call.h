#pragma once

#include "kernels/trees/tree_growth_call.h"

// The call of kernels/trees/select_nodes.h, and the code that the CPU and CUDA versions share.
namespace clover::kernels {

/// Which nodes of a grown tree may be kept.
struct SelectRule {
  bool paths_to_last_level = false;  // true: nodes of the last level and their ancestors; false: all nodes
  bool by_log_probability = false;   // LevelRule::by_log_probability of the grown tree
};

struct SelectCall {
  SelectRule rule;
  int64_t trees;            // in the batch
  int64_t node_capacity;    // nodes of a grown tree that there is room for
  const int64_t* ids;       // [trees, node_capacity]
  const int32_t* parent;    // [trees, node_capacity]
  const float* score;       // [trees, node_capacity]
  const TreeState* states;  // [trees]
  int64_t kept_capacity;    // kept nodes of a tree that there is room for
  int64_t* kept_ids;        // [trees, kept_capacity]
  int32_t* kept_parent;     // [trees, kept_capacity]
  float* kept_probability;  // [trees, kept_capacity]
  TreeState* kept_states;   // [trees]
};
void run_on_cpu(const SelectCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const SelectCall& call, const GpuContext& context);

namespace select {

/// How many nodes of a tree may be kept, the root included.
CLOVER_HOST_DEVICE int32_t max_kept(const SelectCall& call, const TreeState& state) {
  return state.max_kept < call.kept_capacity ? state.max_kept : static_cast<int32_t>(call.kept_capacity);
}

/// Copies node `node` of the grown tree number `tree` to node `to_node` of the kept tree, where the parent is
/// node `to_parent`.
CLOVER_HOST_DEVICE void keep(const SelectCall& call, int64_t tree, int32_t node, int32_t to_node,
                             int32_t to_parent) {
  const int64_t from = tree * call.node_capacity + node, to = tree * call.kept_capacity + to_node;
  const float score = call.score[from];
  call.kept_ids[to] = call.ids[from];
  call.kept_parent[to] = to_parent;
  call.kept_probability[to] = call.rule.by_log_probability ? cuda::exp_scalar(score) : score;
}

/// The state of a tree of which `kept` nodes are kept.
CLOVER_HOST_DEVICE TreeState state_of_kept(const TreeState& grown, int32_t kept) {
  TreeState state = grown;
  state.nodes = kept;
  state.first_live = state.live = 0;
  return state;
}

}  // namespace select
}  // namespace clover::kernels
