#pragma once

#include "kernels/calls.h"
#include "kernels/gpu/numbers.h"

// Children of one node, one after the other, for host and device.
namespace clover::kernels::cuda {

// Sums of probabilities that reach a bound exactly must not fail it by rounding.
constexpr float growth_rounding = 1e-5f;

/// The children that a node may have, best first; `node` < 0: none.
struct Branch {
  int32_t node = -1;
  int64_t row = 0;
  int32_t rank = 0;
  float joint_of_node = 0, best = 0, mass = 0;
  float joint = 0;  // of the present child
  int64_t id = 0;

  CLOVER_BOTH bool alive() const { return node >= 0; }

  CLOVER_BOTH void begin(const GrowthCall& call, const TreeState& tree, int32_t of_node, int64_t of_row,
                         float of_joint) {
    node = of_node;
    row = of_row;
    joint_of_node = of_joint;
    rank = 0;
    mass = best = probability(call);
    settle(call, tree, true, best);
  }

  CLOVER_BOTH void next(const GrowthCall& call, const TreeState& tree) {
    if (++rank >= call.width) {
      node = -1;
      return;
    }
    const float its = probability(call);
    mass += its;
    const bool unlikely = !(its > 0) || its < call.relative_cut * best * (1 - growth_rounding);
    settle(call, tree, !unlikely && mass <= call.top_p + growth_rounding, its);
  }

 private:
  CLOVER_BOTH float probability(const GrowthCall& call) const {
    const float its = exp_one(call.logits[row * call.guesses + rank] - call.log_sums[row]);
    return its > 0 ? (its < 1 ? its : 1) : 0;  // NaN: 0
  }
  CLOVER_BOTH void settle(const GrowthCall& call, const TreeState& tree, bool kept, float its) {
    joint = joint_of_node * its;
    id = call.ids[row * call.guesses + rank];
    if (!kept || joint < tree.least_joint) node = -1;
  }
};

/// Which of two children, both there, comes first.
CLOVER_BOTH bool before(const Branch& a, const Branch& b) {
  if (a.joint != b.joint) return a.joint > b.joint;
  return a.id != b.id ? a.id < b.id : a.node < b.node;
}

/// The tree after a level that ended with `nodes` nodes; its row is not known yet.
CLOVER_BOTH TreeState grown(const TreeState& last, int32_t nodes, int64_t most_live) {
  TreeState now = last;
  const int32_t added = nodes - last.nodes;
  now.nodes = nodes;
  now.first_live = last.nodes;
  now.last_first_live = last.first_live;
  now.last_row = last.row;
  now.levels = last.levels - 1;
  now.live = added < most_live ? added : static_cast<int32_t>(most_live);
  if (now.levels <= 0 || now.nodes >= now.most_nodes) now.live = 0;
  return now;
}

/// That guesses for its live nodes take.
CLOVER_BOTH int32_t rows_of(const TreeState& tree, const GrowthCall& call) {
  return call.one_row_a_tree && tree.live > 0 ? 1 : tree.live;
}

CLOVER_BOTH float joint_of(const GrowthCall& call, int64_t tree, int32_t node) {
  return node == 0 ? 1.0f : call.tree_joint[tree * call.nodes + node];
}

/// Row `i` of those that a tree takes, in the list of all.
CLOVER_BOTH void write_row(const GrowthCall& call, int64_t index, const TreeState& tree, int32_t i) {
  const int64_t at = index * call.nodes + tree.first_live + i;
  const int64_t beside = call.one_row_a_tree ? 0 : call.tree_parent[at] - tree.last_first_live;
  call.next_rows[tree.row + i] = tree.last_row + beside;
  call.next_rows[call.capacity + tree.row + i] = call.tree_ids[at];
}

}  // namespace clover::kernels::cuda
