#pragma once

#include "kernels/gpu/numbers.h"
#include "kernels/op/call.h"
#include "kernels/op/host_device.h"

// The call of kernels/trees/tree_growth.h, and the part of it that tree_growth_cpu.cc and tree_growth_cuda.cu
// share: the children of one node in order, and a tree's state after a level.
namespace clover::kernels {

/// A tree's row of GrowingTrees::state, all zeros for a tree that does not grow.
struct TreeState {
  int32_t nodes = 1;       // so far, the root included
  int32_t first_live = 0;  // number of the first live node; the others follow it
  int32_t live = 1;        // live nodes: those whose children the next level adds
  int32_t row = 0;         // row of `logits` with the guesses for the first live node; the others' follow it
  int32_t most_nodes = 1;  // at most, the root included
  int32_t levels = 0;      // levels left to grow
  float least_joint = 0;   // children of a lower joint probability are left out, even the best guess
  int32_t last_first_live = 0, last_row = 0;  // first_live and row one level ago
};
constexpr int64_t tree_state_size = 9;
static_assert(sizeof(TreeState) == tree_state_size * sizeof(int32_t));

struct GrowthCall {
  const float* logits;    // [guess_rows, guesses]
  const int64_t* ids;     // [guess_rows, guesses]
  const float* log_sums;  // [guess_rows], logsumexp of each row over the whole draft vocabulary
  int64_t guess_rows, guesses;
  int64_t width;  // most children of a node (LevelRule::width)
  float top_p, relative_cut;
  bool one_row_a_tree;
  int64_t most_live, trees;  // most live nodes of a tree; trees of the batch
  int64_t nodes, capacity;   // room for nodes of a tree; room for rows of the next level, of all trees
  int64_t* tree_ids;         // [trees, nodes]
  int32_t* tree_parent;      // [trees, nodes]
  float* tree_joint;         // [trees, nodes]
  TreeState* states;         // [trees]
  /// [2, capacity] of the next level's rows: the row of `logits` that each one's parent had, its token id.
  int64_t* next_rows;
  int32_t* row_count;  // [1]
};
void run_on_cpu(const GrowthCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const GrowthCall& call, const GpuContext& context);

namespace growth {

/// Sums of probabilities that reach a bound exactly must not miss it by rounding.
constexpr float rounding = 1e-5f;

/// Goes through the children of one node, best first.
struct ChildCursor {
  int32_t node = -1;  // the parent; -1: no child is left
  int64_t row = 0;    // its row of guesses
  int32_t rank = 0;   // of the present child in that row
  float joint_of_node = 0;
  float best = 0;   // probability of the row's first guess
  float mass = 0;   // of the guesses up to the present one
  float joint = 0;  // joint probability of the present child
  int64_t id = 0;   // its token

  CLOVER_HOST_DEVICE bool has_child() const { return node >= 0; }

  CLOVER_HOST_DEVICE void begin(const GrowthCall& call, const TreeState& tree, int32_t of_node,
                                int64_t of_row, float of_joint) {
    node = of_node;
    row = of_row;
    joint_of_node = of_joint;
    rank = 0;
    mass = best = probability(call);
    take_child(call, tree, true, best);
  }

  CLOVER_HOST_DEVICE void next(const GrowthCall& call, const TreeState& tree) {
    if (++rank >= call.width) {
      node = -1;
      return;
    }
    const float own = probability(call);
    mass += own;
    const bool unlikely = !(own > 0) || own < call.relative_cut * best * (1 - rounding);
    take_child(call, tree, !unlikely && mass <= call.top_p + rounding, own);
  }

 private:
  CLOVER_HOST_DEVICE float probability(const GrowthCall& call) const {
    const float own = cuda::exp_one(call.logits[row * call.guesses + rank] - call.log_sums[row]);
    return own > 0 ? (own < 1 ? own : 1) : 0;  // NaN: 0
  }
  /// Makes the guess at `rank` the present child; the cursor is exhausted if the rule does not keep it.
  CLOVER_HOST_DEVICE void take_child(const GrowthCall& call, const TreeState& tree, bool kept, float own) {
    joint = joint_of_node * own;
    id = call.ids[row * call.guesses + rank];
    if (!kept || joint < tree.least_joint) node = -1;
  }
};

/// Whether child a comes before child b in the order of nodes.
CLOVER_HOST_DEVICE bool before(const ChildCursor& a, const ChildCursor& b) {
  if (a.joint != b.joint) return a.joint > b.joint;
  return a.id != b.id ? a.id < b.id : a.node < b.node;
}

/// The state of a tree that has `nodes` nodes after a level; its `row` is still the last level's.
CLOVER_HOST_DEVICE TreeState after_level(const TreeState& last, int32_t nodes, int64_t most_live) {
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

/// How many rows of guesses the tree's live nodes need from the drafter.
CLOVER_HOST_DEVICE int32_t rows_needed(const TreeState& tree, const GrowthCall& call) {
  return call.one_row_a_tree && tree.live > 0 ? 1 : tree.live;
}

/// Joint probability of a node; the root's is 1.
CLOVER_HOST_DEVICE float joint_of(const GrowthCall& call, int64_t tree, int32_t node) {
  return node == 0 ? 1.0f : call.tree_joint[tree * call.nodes + node];
}

/// Writes the i-th row that tree number `index` needs to `next_rows`.
CLOVER_HOST_DEVICE void write_row(const GrowthCall& call, int64_t index, const TreeState& tree, int32_t i) {
  const int64_t at = index * call.nodes + tree.first_live + i;
  const int64_t offset = call.one_row_a_tree ? 0 : call.tree_parent[at] - tree.last_first_live;
  call.next_rows[tree.row + i] = tree.last_row + offset;
  call.next_rows[call.capacity + tree.row + i] = call.tree_ids[at];
}

}  // namespace growth
}  // namespace clover::kernels
