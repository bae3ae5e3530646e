#pragma once

#include "kernels/gpu/numbers.h"
#include "kernels/op/call.h"
#include "kernels/op/host_device.h"

// The call of grow_level (kernels/trees/tree_growth.h), and the code that tree_growth_cpu.cc and
// tree_growth_cuda.cu share: the candidates of one node in order, and a tree's state after a level.
namespace clover::kernels {

/// Which guesses of a live node are candidates, and which candidates become its children.  The candidates of
/// a node are its most probable guesses: at most `max_candidates`, as long as their probabilities sum to at
/// most `top_p`, and each at least `relative_cut` times as probable as the best one.  The best guess is
/// always a candidate.
struct LevelRule {
  int64_t max_candidates = 1;
  float top_p = 1, relative_cut = 0;
  // All live nodes of a tree share one row of guesses, because the heads do not read the tokens guessed
  // before (Medusa).
  bool one_row_per_tree = false;
  // True: a node's score is the sum of log-probabilities along its path; ties go to the lower parent number,
  // then to the more probable guess.  False: it is the product of probabilities; ties go to the lower token
  // id, then to the lower parent number.
  bool by_log_probability = false;
  int64_t max_nodes_per_level = INT32_MAX;
  // A candidate becomes a node only if it is then among the TreeState::max_kept best nodes of the tree.  A
  // candidate that is left out has no descendant among these, because no node scores higher than its parent.
  bool best_so_far = false;
};

/// A tree's row of GrowingTrees::state; all zeros for a tree that does not grow.
struct TreeState {
  int32_t nodes = 1;  // so far, the root included
  // Number of the first node of the deepest level.  The first `live` nodes of that level are live; in a tree
  // with a plan, the ones whose PlannedNode::live_index is not -1.
  int32_t first_live = 0;
  int32_t live = 1;  // live nodes: those whose children the next level adds
  // Row of `logits` with the guesses for the first live node; those for the others follow it.
  int32_t guess_row = 0;
  int32_t max_nodes = 1;  // the root included; in a tree with a plan: all nodes of the plan
  int32_t levels = 0;     // still to grow
  float min_score = 0;    // candidates of a lower score are left out, even the best guess
  int32_t previous_first_live = 0, previous_row = 0;  // first_live and guess_row one level before
  int32_t max_kept = 1;  // nodes that select_nodes leaves of the grown tree, the root included
};
constexpr int64_t tree_state_size = 10;
static_assert(sizeof(TreeState) == tree_state_size * sizeof(int32_t));

/// A node of a tree whose shape is fixed in advance.  A plan lists its nodes level by level, the root first.
struct PlannedNode {
  int32_t parent = -1;     // number of the parent node; -1 for the root
  int32_t rank = 0;        // among the guesses at its parent, 0 being the best
  int32_t live_index = 0;  // index among the live nodes of its level; -1: it has no children
};
constexpr int64_t planned_node_size = 3;
static_assert(sizeof(PlannedNode) == planned_node_size * sizeof(int32_t));

struct GrowthCall {
  const float* logits;  // [guess_rows, guesses]
  const int64_t* ids;   // [guess_rows, guesses]
  // [guess_rows] log-sum-exp of each row's logits over the tokens whose probabilities shall sum to 1.
  const float* log_sums;
  int64_t guess_rows;
  int64_t guesses;  // in each row
  LevelRule rule;
  int64_t max_live;           // live nodes of a tree without a plan
  int64_t trees;              // in the batch
  int64_t node_capacity;      // nodes of a tree that there is room for
  int64_t next_row_capacity;  // columns of next_rows
  const PlannedNode* plans;   // [trees, plan_capacity], or null: no plans
  int64_t plan_capacity;
  int64_t* tree_ids;     // [trees, node_capacity]
  int32_t* tree_parent;  // [trees, node_capacity]
  float* tree_score;     // [trees, node_capacity]
  TreeState* states;     // [trees]
  int64_t* next_rows;    // [2, next_row_capacity] GrowingTrees::rows
  int32_t* row_count;    // [1]
};
void run_on_cpu(const GrowthCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const GrowthCall& call, const GpuContext& context);

namespace growth {

/// Tolerance of the bounds on probabilities and their sums, so that rounding excludes no guess at a bound.
constexpr float sum_tolerance = 1e-5f;

CLOVER_HOST_DEVICE float root_score(bool by_log_probability) {
  return by_log_probability ? 0.0f : 1.0f;
}

/// A guess's probability, at most 1, and 0 for NaN; and its logarithm, which may be finite although the
/// probability rounds to 0.
struct Likelihood {
  float probability = 0, logarithm = 0;

  CLOVER_HOST_DEVICE void read(const GrowthCall& call, int64_t row, int32_t rank) {
    const float log_probability = call.logits[row * call.guesses + rank] - call.log_sums[row];
    logarithm = log_probability < 0 ? log_probability : log_probability >= 0 ? 0.0f : cuda::minus_infinity();
    const float rounded = cuda::exp_scalar(log_probability);
    probability = rounded > 0 ? (rounded < 1 ? rounded : 1) : 0;
  }
  /// The score of the guess as a child of a node whose score is `parent_score`.
  CLOVER_HOST_DEVICE float score(const LevelRule& rule, float parent_score) const {
    return rule.by_log_probability ? parent_score + logarithm : parent_score * probability;
  }
  CLOVER_HOST_DEVICE bool possible(const LevelRule& rule) const {
    return rule.by_log_probability ? logarithm > cuda::minus_infinity() : probability > 0;
  }
};

/// Goes through the candidates of one node, best first.
struct CandidateCursor {
  int32_t parent = -1;    // the node; -1: no candidate is left
  int64_t guess_row = 0;  // row of guesses of the node
  int32_t rank = 0;       // of the present candidate in that row
  float parent_score = 0;
  float best_probability = 0;  // probability of the row's first guess
  float mass = 0;              // summed probability of the row's guesses up to the present one
  float score = 0;             // of the present candidate
  int64_t id = 0;              // its token

  CLOVER_HOST_DEVICE bool has_candidate() const { return parent >= 0; }

  CLOVER_HOST_DEVICE void begin(const GrowthCall& call, const TreeState& state, int32_t node, int64_t row,
                                float node_score) {
    parent = node;
    guess_row = row;
    parent_score = node_score;
    rank = 0;
    Likelihood likelihood;
    likelihood.read(call, guess_row, rank);
    mass = best_probability = likelihood.probability;
    take_candidate(call, state, true, likelihood);
  }

  CLOVER_HOST_DEVICE void next(const GrowthCall& call, const TreeState& state) {
    if (++rank >= call.rule.max_candidates) {
      parent = -1;
      return;
    }
    Likelihood likelihood;
    likelihood.read(call, guess_row, rank);
    mass += likelihood.probability;
    const bool unlikely =
        !likelihood.possible(call.rule) ||
        likelihood.probability < call.rule.relative_cut * best_probability * (1 - sum_tolerance);
    take_candidate(call, state, !unlikely && mass <= call.rule.top_p + sum_tolerance, likelihood);
  }

 private:
  /// Makes the guess at `rank` the present candidate; the cursor is exhausted if the rule does not keep it.
  CLOVER_HOST_DEVICE void take_candidate(const GrowthCall& call, const TreeState& state, bool kept,
                                         const Likelihood& likelihood) {
    score = likelihood.score(call.rule, parent_score);
    id = call.ids[guess_row * call.guesses + rank];
    if (!kept || score < state.min_score) parent = -1;
  }
};

/// Whether candidate a ranks before candidate b of another parent; breaks ties as
/// LevelRule::by_log_probability says.  Within one parent the cursor's order decides.
CLOVER_HOST_DEVICE bool before(const LevelRule& rule, const CandidateCursor& a, const CandidateCursor& b) {
  if (a.score != b.score) return a.score > b.score;
  if (rule.by_log_probability || a.id == b.id) return a.parent < b.parent;
  return a.id < b.id;
}

/// The most nodes that a tree may have after the next level.
CLOVER_HOST_DEVICE int32_t max_nodes_after_level(const GrowthCall& call, const TreeState& state) {
  const int64_t limit = state.nodes + call.rule.max_nodes_per_level;
  return limit < state.max_nodes ? static_cast<int32_t>(limit) : state.max_nodes;
}

/// The state of a tree that has `nodes` nodes after a level, `live` of which may get children.  Its guess_row
/// is not updated yet: the caller sets it once all trees have grown.
CLOVER_HOST_DEVICE TreeState after_level(const TreeState& previous, int32_t nodes, int32_t live) {
  TreeState now = previous;
  now.nodes = nodes;
  now.first_live = previous.nodes;
  now.previous_first_live = previous.first_live;
  now.previous_row = previous.guess_row;
  now.levels = previous.levels - 1;
  now.live = now.levels <= 0 || now.nodes >= now.max_nodes ? 0 : live;
  return now;
}
/// The same in a tree without a plan: the first `max_live` of the added nodes, the best ones, are live.
CLOVER_HOST_DEVICE TreeState after_ranked_level(const GrowthCall& call, const TreeState& previous,
                                                int32_t nodes) {
  const int32_t added = nodes - previous.nodes;
  return after_level(previous, nodes, added < call.max_live ? added : static_cast<int32_t>(call.max_live));
}

/// How many rows of guesses the drafter has to compute for the tree's live nodes.
CLOVER_HOST_DEVICE int32_t rows_needed(const GrowthCall& call, const TreeState& state) {
  return call.rule.one_row_per_tree && state.live > 0 ? 1 : state.live;
}

CLOVER_HOST_DEVICE float score_of_node(const GrowthCall& call, int64_t tree, int32_t node) {
  return node == 0 ? root_score(call.rule.by_log_probability)
                   : call.tree_score[tree * call.node_capacity + node];
}

/// The index of a node among the live nodes of its level, which begins at node `first`; with a plan, -1 for a
/// node that is not live.
CLOVER_HOST_DEVICE int32_t live_index_of(const GrowthCall& call, int64_t tree, int32_t node, int32_t first) {
  return call.plans == nullptr ? node - first : call.plans[tree * call.plan_capacity + node].live_index;
}

/// Whether node `node` of a plan, at or after previous.nodes, belongs to the level that is added now.  Nodes
/// of later levels have parents that are not in the tree yet.
CLOVER_HOST_DEVICE bool in_next_level(const GrowthCall& call, int64_t tree, const TreeState& previous,
                                      int32_t node) {
  return node < previous.max_nodes && call.plans[tree * call.plan_capacity + node].parent < previous.nodes;
}

/// Adds node `node` of the plan to the tree.  Returns 1 if it is live, else 0.
CLOVER_HOST_DEVICE int32_t add_planned(const GrowthCall& call, int64_t tree, const TreeState& previous,
                                       int32_t node) {
  const PlannedNode& plan = call.plans[tree * call.plan_capacity + node];
  const int32_t offset =
      call.rule.one_row_per_tree ? 0 : live_index_of(call, tree, plan.parent, previous.first_live);
  const int64_t row = previous.guess_row + offset, at = tree * call.node_capacity + node;
  call.tree_ids[at] = call.ids[row * call.guesses + plan.rank];
  call.tree_parent[at] = plan.parent;
  Likelihood likelihood;
  likelihood.read(call, row, plan.rank);
  call.tree_score[at] = likelihood.score(call.rule, score_of_node(call, tree, plan.parent));
  return plan.live_index >= 0 ? 1 : 0;
}

/// request_guesses must be called for i from 0 to this number - 1.
CLOVER_HOST_DEVICE int32_t nodes_to_request(const GrowthCall& call, const TreeState& state) {
  if (state.live == 0) return 0;
  return call.plans == nullptr ? rows_needed(call, state) : state.nodes - state.first_live;
}

/// Writes the column of the i-th node of the deepest level to next_rows, if the node is live.
CLOVER_HOST_DEVICE void request_guesses(const GrowthCall& call, int64_t tree, const TreeState& state,
                                        int32_t i) {
  const int32_t node = state.first_live + i, live_index = live_index_of(call, tree, node, state.first_live);
  if (live_index < 0 || live_index >= rows_needed(call, state)) return;
  const int64_t at = tree * call.node_capacity + node;
  const int64_t offset = call.rule.one_row_per_tree
                             ? 0
                             : live_index_of(call, tree, call.tree_parent[at], state.previous_first_live);
  call.next_rows[state.guess_row + live_index] = state.previous_row + offset;
  call.next_rows[call.next_row_capacity + state.guess_row + live_index] = call.tree_ids[at];
}

}  // namespace growth
}  // namespace clover::kernels
