#pragma once

#include "kernels/gpu/numbers.h"
#include "kernels/op/call.h"
#include "kernels/op/host_device.h"

// The call of kernels/trees/tree_growth.h, and the part of it that tree_growth_cpu.cc and tree_growth_cuda.cu
// share: the children of one node in order, and a tree's state after a level.
namespace clover::kernels {

/// Which guesses become children of a live node, and which children become nodes: the most probable guesses
/// of each, at most `width`, as long as their probabilities sum to at most `top_p` and each is at least
/// `relative_cut` times the best one's.  The best guess itself is always a child.
struct LevelRule {
  int64_t width = 1;
  float top_p = 1, relative_cut = 0;
  // All live nodes of a tree share one row of guesses, because the drafter does not condition on the tokens
  // drafted before (Medusa).
  bool one_row_a_tree = false;
  // Scores are sums of log-probabilities along the path, and ties go to the first parent, then to its better
  // guess.  Otherwise they are products of probabilities, and ties go to the lowest id, then to the first
  // parent.
  bool by_log_probability = false;
  int64_t most_a_level = INT32_MAX;  // children that become nodes at a level of a tree
  // Children become nodes only while they are among the TreeState::most_kept best nodes so far.  What is left
  // out has no descendant among these either, because no node has a higher score than its parent.
  bool best_so_far = false;
};

/// A tree's row of GrowingTrees::state, all zeros for a tree that does not grow.
struct TreeState {
  int32_t nodes = 1;       // so far, the root included
  int32_t first_live = 0;  // number of the first node of the last level; the live ones of it come first
  int32_t live = 1;        // live nodes: those whose children the next level adds
  int32_t row = 0;         // row of `logits` with the guesses for the first live node; the others' follow it
  int32_t most_nodes = 1;  // at most, the root included; of a plan, its nodes
  int32_t levels = 0;      // levels left to grow
  float least_score = 0;   // children of a lower score are left out, even the best guess
  int32_t last_first_live = 0, last_row = 0;  // first_live and row one level ago
  int32_t most_kept = 1;  // nodes that remain when it has grown (select_nodes.h), the root included
};
constexpr int64_t tree_state_size = 10;
static_assert(sizeof(TreeState) == tree_state_size * sizeof(int32_t));

/// A node of a tree whose shape is known in advance.  Nodes stand level by level, the root first.
struct PlannedNode {
  int32_t parent = -1;
  int32_t rank = 0;   // 0: the best guess at its parent
  int32_t place = 0;  // number among the live nodes of its level, those with children; -1: a leaf
};
constexpr int64_t planned_node_size = 3;
static_assert(sizeof(PlannedNode) == planned_node_size * sizeof(int32_t));

struct GrowthCall {
  const float* logits;    // [guess_rows, guesses]
  const int64_t* ids;     // [guess_rows, guesses]
  const float* log_sums;  // [guess_rows], logsumexp of each row over what its probabilities sum to 1 over
  int64_t guess_rows, guesses;
  LevelRule rule;
  int64_t most_live, trees;  // most live nodes of a tree; trees of the batch
  int64_t nodes, capacity;   // room for nodes of a tree; room for rows of the next level, of all trees
  const PlannedNode* plans;  // [trees, planned], or null: no plan
  int64_t planned;
  int64_t* tree_ids;     // [trees, nodes]
  int32_t* tree_parent;  // [trees, nodes]
  float* tree_score;     // [trees, nodes]
  TreeState* states;     // [trees]
  /// [2, capacity] of the next level's rows: the row of `logits` that each one's parent had, its token id.
  int64_t* next_rows;
  int32_t* row_count;  // [1]
};
void run_on_cpu(const GrowthCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const GrowthCall& call, const GpuContext& context);

namespace growth {

/// Sums of probabilities that reach a bound exactly must not miss it by rounding.
constexpr float rounding = 1e-5f;

CLOVER_HOST_DEVICE float root_score(bool by_log_probability) {
  return by_log_probability ? 0.0f : 1.0f;
}

/// A guess's probability, 1 at most and 0 for NaN; and its logarithm, which may be finite where that is 0.
struct Likelihood {
  float probability = 0, logarithm = 0;

  CLOVER_HOST_DEVICE void read(const GrowthCall& call, int64_t row, int32_t rank) {
    const float own = call.logits[row * call.guesses + rank] - call.log_sums[row];
    logarithm = own < 0 ? own : own >= 0 ? 0.0f : cuda::minus_infinity();
    const float rounded = cuda::exp_one(own);
    probability = rounded > 0 ? (rounded < 1 ? rounded : 1) : 0;
  }
  /// The score of the guess behind a node of score `of_parent`.
  CLOVER_HOST_DEVICE float score(const LevelRule& rule, float of_parent) const {
    return rule.by_log_probability ? of_parent + logarithm : of_parent * probability;
  }
  CLOVER_HOST_DEVICE bool possible(const LevelRule& rule) const {
    return rule.by_log_probability ? logarithm > cuda::minus_infinity() : probability > 0;
  }
};

/// Goes through the children of one node, best first.
struct ChildCursor {
  int32_t node = -1;  // the parent; -1: no child is left
  int64_t row = 0;    // its row of guesses
  int32_t rank = 0;   // of the present child in that row
  float score_of_node = 0;
  float best = 0;   // probability of the row's first guess
  float mass = 0;   // of the guesses up to the present one
  float score = 0;  // of the present child
  int64_t id = 0;   // its token

  CLOVER_HOST_DEVICE bool has_child() const { return node >= 0; }

  CLOVER_HOST_DEVICE void begin(const GrowthCall& call, const TreeState& tree, int32_t of_node,
                                int64_t of_row, float of_score) {
    node = of_node;
    row = of_row;
    score_of_node = of_score;
    rank = 0;
    Likelihood own;
    own.read(call, row, rank);
    mass = best = own.probability;
    take_child(call, tree, true, own);
  }

  CLOVER_HOST_DEVICE void next(const GrowthCall& call, const TreeState& tree) {
    if (++rank >= call.rule.width) {
      node = -1;
      return;
    }
    Likelihood own;
    own.read(call, row, rank);
    mass += own.probability;
    const bool unlikely =
        !own.possible(call.rule) || own.probability < call.rule.relative_cut * best * (1 - rounding);
    take_child(call, tree, !unlikely && mass <= call.rule.top_p + rounding, own);
  }

 private:
  /// Makes the guess at `rank` the present child; the cursor is exhausted if the rule does not keep it.
  CLOVER_HOST_DEVICE void take_child(const GrowthCall& call, const TreeState& tree, bool kept,
                                     const Likelihood& own) {
    score = own.score(call.rule, score_of_node);
    id = call.ids[row * call.guesses + rank];
    if (!kept || score < tree.least_score) node = -1;
  }
};

/// Whether child a comes before child b, of another parent, in the order of nodes.
CLOVER_HOST_DEVICE bool before(const LevelRule& rule, const ChildCursor& a, const ChildCursor& b) {
  if (a.score != b.score) return a.score > b.score;
  if (rule.by_log_probability || a.id == b.id) return a.node < b.node;
  return a.id < b.id;
}

/// How many nodes a tree may have after the next level.
CLOVER_HOST_DEVICE int32_t most_after_level(const LevelRule& rule, const TreeState& tree) {
  const int64_t most = tree.nodes + rule.most_a_level;
  return most < tree.most_nodes ? static_cast<int32_t>(most) : tree.most_nodes;
}

/// The state of a tree that has `nodes` nodes after a level, `live` of which may get children; its `row` is
/// still the last level's.
CLOVER_HOST_DEVICE TreeState after_level(const TreeState& last, int32_t nodes, int32_t live) {
  TreeState now = last;
  now.nodes = nodes;
  now.first_live = last.nodes;
  now.last_first_live = last.first_live;
  now.last_row = last.row;
  now.levels = last.levels - 1;
  now.live = now.levels <= 0 || now.nodes >= now.most_nodes ? 0 : live;
  return now;
}
/// The same where the first of the added nodes are live.
CLOVER_HOST_DEVICE TreeState after_ranked_level(const TreeState& last, int32_t nodes, int64_t most_live) {
  const int32_t added = nodes - last.nodes;
  return after_level(last, nodes, added < most_live ? added : static_cast<int32_t>(most_live));
}

/// How many rows of guesses the tree's live nodes need from the drafter.
CLOVER_HOST_DEVICE int32_t rows_needed(const TreeState& tree, const GrowthCall& call) {
  return call.rule.one_row_a_tree && tree.live > 0 ? 1 : tree.live;
}

CLOVER_HOST_DEVICE float score_of_node(const GrowthCall& call, int64_t tree, int32_t node) {
  return node == 0 ? root_score(call.rule.by_log_probability) : call.tree_score[tree * call.nodes + node];
}

/// The number of a node among the live ones of its level, whose first node is `first`.
CLOVER_HOST_DEVICE int32_t place_of(const GrowthCall& call, int64_t tree, int32_t node, int32_t first) {
  return call.plans == nullptr ? node - first : call.plans[tree * call.planned + node].place;
}

/// Whether node `node` of a plan stands in the level behind `last`.
CLOVER_HOST_DEVICE bool in_next_level(const GrowthCall& call, int64_t tree, const TreeState& last,
                                      int32_t node) {
  return node < last.most_nodes && call.plans[tree * call.planned + node].parent < last.nodes;
}

/// Adds that node.  Returns how many live nodes that makes: 1 or 0.
CLOVER_HOST_DEVICE int32_t add_planned(const GrowthCall& call, int64_t tree, const TreeState& last,
                                       int32_t node) {
  const PlannedNode& plan = call.plans[tree * call.planned + node];
  const int32_t place = place_of(call, tree, plan.parent, last.first_live);
  const int64_t row = last.row + (call.rule.one_row_a_tree ? 0 : place), at = tree * call.nodes + node;
  call.tree_ids[at] = call.ids[row * call.guesses + plan.rank];
  call.tree_parent[at] = plan.parent;
  Likelihood own;
  own.read(call, row, plan.rank);
  call.tree_score[at] = own.score(call.rule, score_of_node(call, tree, plan.parent));
  return plan.place >= 0 ? 1 : 0;
}

/// How many nodes of the last level `write_row` looks at.
CLOVER_HOST_DEVICE int32_t nodes_to_look_at(const TreeState& tree, const GrowthCall& call) {
  if (tree.live == 0) return 0;
  return call.plans == nullptr ? rows_needed(tree, call) : tree.nodes - tree.first_live;
}

/// Writes the row that the i-th node of the last level needs, if any, to `next_rows`.
CLOVER_HOST_DEVICE void write_row(const GrowthCall& call, int64_t index, const TreeState& tree, int32_t i) {
  const int32_t node = tree.first_live + i, place = place_of(call, index, node, tree.first_live);
  if (place < 0 || place >= rows_needed(tree, call)) return;
  const int64_t at = index * call.nodes + node;
  const int64_t offset =
      call.rule.one_row_a_tree ? 0 : place_of(call, index, call.tree_parent[at], tree.last_first_live);
  call.next_rows[tree.row + place] = tree.last_row + offset;
  call.next_rows[call.capacity + tree.row + place] = call.tree_ids[at];
}

}  // namespace growth
}  // namespace clover::kernels
