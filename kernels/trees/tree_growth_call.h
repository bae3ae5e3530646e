#pragma once

#include "kernels/gpu/numbers.h"
#include "kernels/op/call.h"
#include "kernels/op/host_device.h"

// The call of kernels/trees/tree_growth.h, and the part of it that tree_growth_cpu.cc and tree_growth_cuda.cu
// share: the candidates of one node in order, and a tree's state after a level.
namespace clover::kernels {

/// Which guesses of a live node are candidates, and which candidates become its children.  Candidates are the
/// most probable guesses, at most `max_candidates`, while their probabilities sum to at most `top_p` and each
/// is at least `relative_cut` times the best one's.  The best guess is always a candidate.
struct LevelRule {
  int64_t max_candidates = 1;
  float top_p = 1, relative_cut = 0;
  // All live nodes of a tree share one row of guesses, because the drafter does not condition on the tokens
  // drafted before (Medusa).
  bool one_row_a_tree = false;
  // Scores are sums of log-probabilities along the path, and ties go to the first parent, then to its better
  // guess.  Otherwise they are products of probabilities, and ties go to the lowest id, then to the first
  // parent.
  bool by_log_probability = false;
  int64_t most_a_level = INT32_MAX;  // candidates that become nodes at a level of a tree
  // Candidates become nodes only while they are among the TreeState::most_kept best nodes so far.  What is
  // left out has no descendant among these either, because no node has a higher score than its parent.
  bool best_so_far = false;
};

/// A tree's row of GrowingTrees::state, all zeros for a tree that does not grow.
struct TreeState {
  int32_t nodes = 1;  // so far, the root included
  // Number of the first node of the deepest level.  The first `live` of that level are live or, in a tree
  // with a plan, those whose PlannedNode::live_index is not -1.
  int32_t first_live = 0;
  int32_t live = 1;  // live nodes: those whose children the next level adds
  // Row of `logits` with the guesses for the first live node; those for the others follow it.
  int32_t guess_row = 0;
  // The tree stops growing at so many nodes, the root included; with a plan: the plan's nodes.
  int32_t most_nodes = 1;
  int32_t levels = 0;     // levels left to grow
  float least_score = 0;  // candidates of a lower score are left out, even the best guess
  int32_t previous_first_live = 0, previous_row = 0;  // first_live and guess_row one level ago
  int32_t most_kept = 1;  // nodes that remain when it has grown (select_nodes.h), the root included
};
constexpr int64_t tree_state_size = 10;
static_assert(sizeof(TreeState) == tree_state_size * sizeof(int32_t));

/// A node of a tree whose shape is known in advance.  Nodes stand level by level, the root first.
struct PlannedNode {
  int32_t parent = -1;
  int32_t rank = 0;        // 0: the best guess at its parent
  int32_t live_index = 0;  // index among the live nodes of its level; -1: it has no children
};
constexpr int64_t planned_node_size = 3;
static_assert(sizeof(PlannedNode) == planned_node_size * sizeof(int32_t));

struct GrowthCall {
  const float* logits;  // [guess_rows, guesses]
  const int64_t* ids;   // [guess_rows, guesses]
  // [guess_rows] logsumexp of each row, taken over the tokens among which its probabilities sum to 1.
  const float* log_sums;
  int64_t guess_rows;
  int64_t guesses;  // of a row
  LevelRule rule;
  int64_t most_live;         // live nodes of a tree without a plan
  int64_t trees;             // of the batch
  int64_t node_room;         // nodes that there is room for in a tree
  int64_t next_row_room;     // rows of the next level, of all trees, that there is room for
  const PlannedNode* plans;  // [trees, planned], or null: no plan
  int64_t planned;           // nodes that there is room for in a plan
  int64_t* tree_ids;         // [trees, node_room]
  int32_t* tree_parent;      // [trees, node_room]
  float* tree_score;         // [trees, node_room]
  TreeState* states;         // [trees]
  /// [2, next_row_room], a column for each live node (one for a tree under one_row_a_tree): the row of
  /// `logits` that the node was guessed from, and the node's token.
  int64_t* next_rows;
  int32_t* row_count;  // [1] rows of the next level
};
void run_on_cpu(const GrowthCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const GrowthCall& call, const GpuContext& context);

namespace growth {

/// Sums of probabilities that reach a bound exactly must not miss it by rounding.
constexpr float sum_tolerance = 1e-5f;

CLOVER_HOST_DEVICE float root_score(bool by_log_probability) {
  return by_log_probability ? 0.0f : 1.0f;
}

/// A guess's probability, 1 at most and 0 for NaN; and its logarithm, which may be finite where that is 0.
struct Likelihood {
  float probability = 0, logarithm = 0;

  CLOVER_HOST_DEVICE void read(const GrowthCall& call, int64_t row, int32_t rank) {
    const float log_probability = call.logits[row * call.guesses + rank] - call.log_sums[row];
    logarithm = log_probability < 0 ? log_probability : log_probability >= 0 ? 0.0f : cuda::minus_infinity();
    const float rounded = cuda::exp_one(log_probability);
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
  int32_t parent = -1;    // that node; -1: no candidate is left
  int64_t guess_row = 0;  // of the node
  int32_t rank = 0;       // of the present candidate in that row
  float parent_score = 0;
  float best = 0;   // probability of the row's first guess
  float mass = 0;   // summed probability of the row's guesses up to the present one
  float score = 0;  // of the present candidate
  int64_t id = 0;   // its token

  CLOVER_HOST_DEVICE bool has_candidate() const { return parent >= 0; }

  CLOVER_HOST_DEVICE void begin(const GrowthCall& call, const TreeState& state, int32_t of_parent,
                                int64_t of_row, float of_score) {
    parent = of_parent;
    guess_row = of_row;
    parent_score = of_score;
    rank = 0;
    Likelihood likelihood;
    likelihood.read(call, guess_row, rank);
    mass = best = likelihood.probability;
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
    const bool unlikely = !likelihood.possible(call.rule) ||
                          likelihood.probability < call.rule.relative_cut * best * (1 - sum_tolerance);
    take_candidate(call, state, !unlikely && mass <= call.rule.top_p + sum_tolerance, likelihood);
  }

 private:
  /// Makes the guess at `rank` the present candidate; the cursor is exhausted if the rule does not keep it.
  CLOVER_HOST_DEVICE void take_candidate(const GrowthCall& call, const TreeState& state, bool kept,
                                         const Likelihood& likelihood) {
    score = likelihood.score(call.rule, parent_score);
    id = call.ids[guess_row * call.guesses + rank];
    if (!kept || score < state.least_score) parent = -1;
  }
};

/// Whether candidate a ranks before candidate b of another parent; breaks ties as
/// LevelRule::by_log_probability says.  Within one parent the cursor's order decides.
CLOVER_HOST_DEVICE bool before(const LevelRule& rule, const CandidateCursor& a, const CandidateCursor& b) {
  if (a.score != b.score) return a.score > b.score;
  if (rule.by_log_probability || a.id == b.id) return a.parent < b.parent;
  return a.id < b.id;
}

/// How many nodes a tree may have after the next level.
CLOVER_HOST_DEVICE int32_t most_after_level(const GrowthCall& call, const TreeState& state) {
  const int64_t most = state.nodes + call.rule.most_a_level;
  return most < state.most_nodes ? static_cast<int32_t>(most) : state.most_nodes;
}

/// The state of a tree that has `nodes` nodes after a level, `live` of which may get children; its guess_row
/// is still that of the level before.
CLOVER_HOST_DEVICE TreeState after_level(const TreeState& previous, int32_t nodes, int32_t live) {
  TreeState now = previous;
  now.nodes = nodes;
  now.first_live = previous.nodes;
  now.previous_first_live = previous.first_live;
  now.previous_row = previous.guess_row;
  now.levels = previous.levels - 1;
  now.live = now.levels <= 0 || now.nodes >= now.most_nodes ? 0 : live;
  return now;
}
/// The same in a tree without a plan: the first `most_live` of the added nodes, the best ones, are live.
CLOVER_HOST_DEVICE TreeState after_ranked_level(const GrowthCall& call, const TreeState& previous,
                                                int32_t nodes) {
  const int32_t added = nodes - previous.nodes;
  return after_level(previous, nodes, added < call.most_live ? added : static_cast<int32_t>(call.most_live));
}

/// How many rows of guesses the tree's live nodes need from the drafter.
CLOVER_HOST_DEVICE int32_t rows_needed(const GrowthCall& call, const TreeState& state) {
  return call.rule.one_row_a_tree && state.live > 0 ? 1 : state.live;
}

CLOVER_HOST_DEVICE float score_of_node(const GrowthCall& call, int64_t tree, int32_t node) {
  return node == 0 ? root_score(call.rule.by_log_probability) : call.tree_score[tree * call.node_room + node];
}

/// The index of a node among the live ones of its level, whose first node is `first`.
CLOVER_HOST_DEVICE int32_t live_index_of(const GrowthCall& call, int64_t tree, int32_t node, int32_t first) {
  return call.plans == nullptr ? node - first : call.plans[tree * call.planned + node].live_index;
}

/// Whether node `node` of a plan, previous.nodes or later, belongs to the level that is added now: parents of
/// later levels are not in the tree yet.
CLOVER_HOST_DEVICE bool in_next_level(const GrowthCall& call, int64_t tree, const TreeState& previous,
                                      int32_t node) {
  return node < previous.most_nodes && call.plans[tree * call.planned + node].parent < previous.nodes;
}

/// Adds node `node` of the plan to the tree.  Returns 1 if it is live, else 0.
CLOVER_HOST_DEVICE int32_t add_planned(const GrowthCall& call, int64_t tree, const TreeState& previous,
                                       int32_t node) {
  const PlannedNode& plan = call.plans[tree * call.planned + node];
  const int32_t offset =
      call.rule.one_row_a_tree ? 0 : live_index_of(call, tree, plan.parent, previous.first_live);
  const int64_t row = previous.guess_row + offset, at = tree * call.node_room + node;
  call.tree_ids[at] = call.ids[row * call.guesses + plan.rank];
  call.tree_parent[at] = plan.parent;
  Likelihood likelihood;
  likelihood.read(call, row, plan.rank);
  call.tree_score[at] = likelihood.score(call.rule, score_of_node(call, tree, plan.parent));
  return plan.live_index >= 0 ? 1 : 0;
}

/// How many nodes of the deepest level request_guesses is called for.
CLOVER_HOST_DEVICE int32_t nodes_to_request(const GrowthCall& call, const TreeState& state) {
  if (state.live == 0) return 0;
  return call.plans == nullptr ? rows_needed(call, state) : state.nodes - state.first_live;
}

/// Asks for guesses at the i-th node of the deepest level, if it is live: writes its row to next_rows.
CLOVER_HOST_DEVICE void request_guesses(const GrowthCall& call, int64_t tree, const TreeState& state,
                                        int32_t i) {
  const int32_t node = state.first_live + i, live_index = live_index_of(call, tree, node, state.first_live);
  if (live_index < 0 || live_index >= rows_needed(call, state)) return;
  const int64_t at = tree * call.node_room + node;
  const int64_t offset = call.rule.one_row_a_tree
                             ? 0
                             : live_index_of(call, tree, call.tree_parent[at], state.previous_first_live);
  call.next_rows[state.guess_row + live_index] = state.previous_row + offset;
  call.next_rows[call.next_row_room + state.guess_row + live_index] = call.tree_ids[at];
}

}  // namespace growth
}  // namespace clover::kernels
