#pragma once

#include "kernels/trees/tree_growth_call.h"

// The call of kernels/trees/select_nodes.h, and what its CPU and CUDA bodies share.
namespace clover::kernels {

/// Which nodes of a tree remain when it has grown.
struct SelectRule {
  bool paths_to_last_level = false;  // nodes of the last level and their ancestors; otherwise all ..
  bool by_log_probability = false;   // how nodes were scored (LevelRule)
};

struct SelectCall {
  SelectRule rule;
  int64_t trees, nodes;     // trees of the batch; room for nodes of a tree as it has grown
  const int64_t* ids;       // [trees, nodes]
  const int32_t* parent;    // [trees, nodes]
  const float* score;       // [trees, nodes]
  const TreeState* states;  // [trees]
  int64_t room;             // for nodes that remain of a tree
  int64_t* kept_ids;        // [trees, room]
  int32_t* kept_parent;     // [trees, room]
  float* kept_probability;  // [trees, room]
  TreeState* kept_states;   // [trees]
};
void run_on_cpu(const SelectCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const SelectCall& call, const GpuContext& context);

namespace select {

/// How many nodes may remain of a tree, the root included.
CLOVER_HOST_DEVICE int32_t most_kept(const SelectCall& call, const TreeState& tree) {
  return tree.most_kept < call.room ? tree.most_kept : static_cast<int32_t>(call.room);
}

/// Copies a node of tree number `tree` to its place among those that remain, where its parent has `parent`.
CLOVER_HOST_DEVICE void keep(const SelectCall& call, int64_t tree, int32_t node, int32_t place,
                             int32_t parent) {
  const int64_t from = tree * call.nodes + node, to = tree * call.room + place;
  const float score = call.score[from];
  call.kept_ids[to] = call.ids[from];
  call.kept_parent[to] = parent;
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
