#include <algorithm>
#include <vector>

#include "kernels/call_of.h"
#include "kernels/cpu.h"
#include "kernels/trees/growth.h"

namespace clover::kernels::cpu {
namespace {

using cuda::Branch;

TreeState grow_tree(const GrowthCall& call, int64_t tree, const TreeState& last,
                    std::vector<Branch>& branches) {
  branches.resize(last.live);
  for (int32_t i = 0; i < last.live; ++i) {
    const int32_t node = last.first_live + i;
    branches[i].begin(call, last, node, last.row + (call.one_row_a_tree ? 0 : i),
                      cuda::joint_of(call, tree, node));
  }
  int32_t nodes = last.nodes;
  for (; nodes < last.most_nodes; ++nodes) {
    std::erase_if(branches, [](const Branch& branch) { return !branch.alive(); });
    const auto best = std::min_element(branches.begin(), branches.end(), cuda::before);
    if (best == branches.end()) break;
    const int64_t at = tree * call.nodes + nodes;
    call.tree_ids[at] = best->id;
    call.tree_parent[at] = best->node;
    call.tree_joint[at] = best->joint;
    best->next(call, last);
  }
  return cuda::grown(last, nodes, call.most_live);
}

}  // namespace

void grow_level(const at::Tensor& logits, const at::Tensor& ids, const at::Tensor& log_sums,
                const LevelRule& rule, int64_t most_live, GrowingTrees& trees) {
  const GrowthCall call = call_of(logits, ids, log_sums, rule, most_live, trees);
  std::vector<Branch> branches;
  int32_t rows = 0;
  for (int64_t tree = 0; tree < call.trees; ++tree) {
    TreeState& state = call.states[tree];
    if (state.live == 0) continue;
    TORCH_CHECK(state.most_nodes <= call.nodes && state.row + cuda::rows_of(state, call) <= logits.size(0),
                "grow_level: tree ", tree, " has no room for ", state.most_nodes,
                " nodes, or its guesses are missing.");
    state = grow_tree(call, tree, state, branches);
    state.row = rows;
    for (int32_t i = 0; i < cuda::rows_of(state, call); ++i) cuda::write_row(call, tree, state, i);
    rows += cuda::rows_of(state, call);
  }
  for (int64_t part = 0; part < 2; ++part)
    std::fill(call.next_rows + part * call.capacity + rows, call.next_rows + (part + 1) * call.capacity, 0);
  *call.row_count = rows;
}

}  // namespace clover::kernels::cpu
