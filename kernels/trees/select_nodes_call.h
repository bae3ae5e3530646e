#pragma once

#include "kernels/trees/tree_growth_call.h"

// The call of kernels/trees/select_nodes.h, and what its CPU and CUDA bodies share.  Ties while a tree grows
// are broken by growth::before in tree_growth_call.h; ties when it is cut back, by node number.
namespace clover::kernels {

/// Which nodes of a tree remain when it has grown.
struct SelectRule {
  bool paths_to_last_level = false;  // nodes of the last level and their ancestors; otherwise all ..
  bool by_log_probability = false;   // how nodes were scored (LevelRule)
};

struct SelectCall {
  SelectRule rule;
  int64_t trees;            // of the batch
  int64_t node_room;        // nodes that there is room for in a tree as it has grown
  const int64_t* ids;       // [trees, node_room]
  const int32_t* parent;    // [trees, node_room]
  const float* score;       // [trees, node_room]
  const TreeState* states;  // [trees]
  int64_t kept_room;        // nodes that there is room for of those that remain of a tree
  int64_t* kept_ids;        // [trees, kept_room]
  int32_t* kept_parent;     // [trees, kept_room]
  float* kept_probability;  // [trees, kept_room]
  TreeState* kept_states;   // [trees]
};
void run_on_cpu(const SelectCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const SelectCall& call, const GpuContext& context);

namespace select {

/// How many nodes may remain of a tree, the root included.
CLOVER_HOST_DEVICE int32_t most_kept(const SelectCall& call, const TreeState& state) {
  return state.most_kept < call.kept_room ? state.most_kept : static_cast<int32_t>(call.kept_room);
}

/// Copies node `node` of tree number `tree` to node `to_node` of what remains of it, where its parent is
/// `to_parent`.
CLOVER_HOST_DEVICE void keep(const SelectCall& call, int64_t tree, int32_t node, int32_t to_node,
                             int32_t to_parent) {
  const int64_t from = tree * call.node_room + node, to = tree * call.kept_room + to_node;
  const float score = call.score[from];
  call.kept_ids[to] = call.ids[from];
  call.kept_parent[to] = to_parent;
  call.kept_probability[to] = call.rule.by_log_probability ? cuda::exp_one(score) : score;
}

/// The state of a tree of which `kept` nodes remain.
CLOVER_HOST_DEVICE TreeState after(const TreeState& grown, int32_t kept) {
  TreeState state = grown;
  state.nodes = kept;
  state.first_live = state.live = 0;
  return state;
}

}  // namespace select
}  // namespace clover::kernels
