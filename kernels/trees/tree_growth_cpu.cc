#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

#include "kernels/trees/tree_growth_call.h"

namespace clover::kernels {
namespace {

/// Whether a child of that score, behind `nodes` nodes with better children of its level, is among the
/// TreeState::most_kept best so far.
bool among_best(const GrowthCall& call, int64_t tree, const TreeState& last, int32_t nodes, float score) {
  if (!call.rule.best_so_far || nodes < last.most_kept) return true;
  const float* scores = call.tree_score + tree * call.nodes;
  const auto better =
      std::count_if(scores + 1, scores + last.nodes, [score](float other) { return other >= score; });
  return 1 + better + (nodes - last.nodes) < last.most_kept;
}

TreeState grow_ranked(const GrowthCall& call, int64_t tree, const TreeState& last,
                      std::vector<growth::ChildCursor>& cursors) {
  cursors.resize(last.live);
  for (int32_t i = 0; i < last.live; ++i) {
    const int32_t node = last.first_live + i;
    cursors[i].begin(call, last, node, last.row + (call.rule.one_row_a_tree ? 0 : i),
                     growth::score_of_node(call, tree, node));
  }
  int32_t nodes = last.nodes;
  for (const int32_t most = growth::most_after_level(call.rule, last); nodes < most; ++nodes) {
    std::erase_if(cursors, [](const growth::ChildCursor& cursor) { return !cursor.has_child(); });
    const auto best = std::min_element(cursors.begin(), cursors.end(), [&](const auto& a, const auto& b) {
      return growth::before(call.rule, a, b);
    });
    if (best == cursors.end() || !among_best(call, tree, last, nodes, best->score)) break;
    const int64_t at = tree * call.nodes + nodes;
    call.tree_ids[at] = best->id;
    call.tree_parent[at] = best->node;
    call.tree_score[at] = best->score;
    best->next(call, last);
  }
  return growth::after_ranked_level(last, nodes, call.most_live);
}

TreeState grow_planned(const GrowthCall& call, int64_t tree, const TreeState& last) {
  int32_t nodes = last.nodes, live = 0;
  for (; growth::in_next_level(call, tree, last, nodes); ++nodes)
    live += growth::add_planned(call, tree, last, nodes);
  return growth::after_level(last, nodes, live);
}

}  // namespace

void run_on_cpu(const GrowthCall& call) {
  std::vector<growth::ChildCursor> cursors;
  int32_t rows = 0;
  for (int64_t tree = 0; tree < call.trees; ++tree) {
    TreeState& state = call.states[tree];
    if (state.live == 0) continue;
    TORCH_CHECK(state.most_nodes <= call.nodes &&
                    (call.plans == nullptr || state.most_nodes <= call.planned) &&
                    state.row + growth::rows_needed(state, call) <= call.guess_rows,
                "grow_level: tree ", tree, " has no room for ", state.most_nodes,
                " nodes, or its guesses are missing.");
    state = call.plans ? grow_planned(call, tree, state) : grow_ranked(call, tree, state, cursors);
    state.row = rows;
    for (int32_t i = 0; i < growth::nodes_to_look_at(state, call); ++i)
      growth::write_row(call, tree, state, i);
    rows += growth::rows_needed(state, call);
  }
  for (int64_t part = 0; part < 2; ++part)
    std::fill(call.next_rows + part * call.capacity + rows, call.next_rows + (part + 1) * call.capacity, 0);
  *call.row_count = rows;
}

}  // namespace clover::kernels
