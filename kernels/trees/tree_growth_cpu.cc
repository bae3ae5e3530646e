#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

#include "kernels/trees/tree_growth_call.h"

namespace clover::kernels {
namespace {

/// Whether a candidate of score `score` is among the TreeState::max_kept best nodes (LevelRule::best_so_far)
/// of a tree that has `nodes` nodes, the better candidates of its level included.
bool among_best(const GrowthCall& call, int64_t tree, const TreeState& previous, int32_t nodes, float score) {
  if (!call.rule.best_so_far || nodes < previous.max_kept) return true;
  const float* scores = call.tree_score + tree * call.node_capacity;
  const auto better =
      std::count_if(scores + 1, scores + previous.nodes, [score](float other) { return other >= score; });
  return 1 + better + (nodes - previous.nodes) < previous.max_kept;
}

/// Adds a level to a tree without a plan; returns the new state.
TreeState grow_ranked(const GrowthCall& call, int64_t tree, const TreeState& previous,
                      std::vector<growth::CandidateCursor>& cursors) {
  cursors.resize(previous.live);
  for (int32_t i = 0; i < previous.live; ++i) {
    const int32_t node = previous.first_live + i;
    cursors[i].begin(call, previous, node, previous.guess_row + (call.rule.one_row_per_tree ? 0 : i),
                     growth::score_of_node(call, tree, node));
  }
  int32_t nodes = previous.nodes;
  for (const int32_t limit = growth::max_nodes_after_level(call, previous); nodes < limit; ++nodes) {
    std::erase_if(cursors, [](const growth::CandidateCursor& cursor) { return !cursor.has_candidate(); });
    const auto best = std::min_element(cursors.begin(), cursors.end(), [&](const auto& a, const auto& b) {
      return growth::before(call.rule, a, b);
    });
    if (best == cursors.end() || !among_best(call, tree, previous, nodes, best->score)) break;
    const int64_t at = tree * call.node_capacity + nodes;
    call.tree_ids[at] = best->id;
    call.tree_parent[at] = best->parent;
    call.tree_score[at] = best->score;
    best->next(call, previous);
  }
  return growth::after_ranked_level(call, previous, nodes);
}

/// Adds a level to a tree with a plan; returns the new state.
TreeState grow_planned(const GrowthCall& call, int64_t tree, const TreeState& previous) {
  int32_t nodes = previous.nodes, live = 0;
  for (; growth::in_next_level(call, tree, previous, nodes); ++nodes)
    live += growth::add_planned(call, tree, previous, nodes);
  return growth::after_level(previous, nodes, live);
}

}  // namespace

void run_on_cpu(const GrowthCall& call) {
  std::vector<growth::CandidateCursor> cursors;
  int32_t rows = 0;
  for (int64_t tree = 0; tree < call.trees; ++tree) {
    TreeState& state = call.states[tree];
    if (state.live == 0) continue;
    TORCH_CHECK(state.max_nodes <= call.node_capacity &&
                    (call.plans == nullptr || state.max_nodes <= call.plan_capacity) &&
                    state.guess_row + growth::rows_needed(call, state) <= call.guess_rows,
                "grow_level: tree ", tree, " has no room for ", state.max_nodes,
                " nodes, or its guesses are missing.");
    state = call.plans ? grow_planned(call, tree, state) : grow_ranked(call, tree, state, cursors);
    state.guess_row = rows;
    for (int32_t i = 0; i < growth::nodes_to_request(call, state); ++i)
      growth::request_guesses(call, tree, state, i);
    rows += growth::rows_needed(call, state);
  }
  for (int64_t part = 0; part < 2; ++part)
    std::fill(call.next_rows + part * call.next_row_capacity + rows,
              call.next_rows + (part + 1) * call.next_row_capacity, 0);
  *call.row_count = rows;
}

}  // namespace clover::kernels
