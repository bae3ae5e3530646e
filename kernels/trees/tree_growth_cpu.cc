#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

#include "kernels/trees/tree_growth_call.h"

namespace clover::kernels {
namespace {

TreeState grow_tree(const GrowthCall& call, int64_t tree, const TreeState& last,
                    std::vector<growth::ChildCursor>& cursors) {
  cursors.resize(last.live);
  for (int32_t i = 0; i < last.live; ++i) {
    const int32_t node = last.first_live + i;
    cursors[i].begin(call, last, node, last.row + (call.one_row_a_tree ? 0 : i),
                     growth::joint_of(call, tree, node));
  }
  int32_t nodes = last.nodes;
  for (; nodes < last.most_nodes; ++nodes) {
    std::erase_if(cursors, [](const growth::ChildCursor& cursor) { return !cursor.has_child(); });
    const auto best = std::min_element(cursors.begin(), cursors.end(), growth::before);
    if (best == cursors.end()) break;
    const int64_t at = tree * call.nodes + nodes;
    call.tree_ids[at] = best->id;
    call.tree_parent[at] = best->node;
    call.tree_joint[at] = best->joint;
    best->next(call, last);
  }
  return growth::after_level(last, nodes, call.most_live);
}

}  // namespace

void run_on_cpu(const GrowthCall& call) {
  std::vector<growth::ChildCursor> cursors;
  int32_t rows = 0;
  for (int64_t tree = 0; tree < call.trees; ++tree) {
    TreeState& state = call.states[tree];
    if (state.live == 0) continue;
    TORCH_CHECK(
        state.most_nodes <= call.nodes && state.row + growth::rows_needed(state, call) <= call.guess_rows,
        "grow_level: tree ", tree, " has no room for ", state.most_nodes,
        " nodes, or its guesses are missing.");
    state = grow_tree(call, tree, state, cursors);
    state.row = rows;
    for (int32_t i = 0; i < growth::rows_needed(state, call); ++i) growth::write_row(call, tree, state, i);
    rows += growth::rows_needed(state, call);
  }
  for (int64_t part = 0; part < 2; ++part)
    std::fill(call.next_rows + part * call.capacity + rows, call.next_rows + (part + 1) * call.capacity, 0);
  *call.row_count = rows;
}

}  // namespace clover::kernels
