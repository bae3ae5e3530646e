#include "kernels/trees/select_nodes.h"

#include <algorithm>
#include <vector>

#include "kernels/op/check.h"
#include "kernels/op/run.h"

namespace clover::kernels {
namespace {

/// Marks the nodes on a path to the last level; marks [nodes of the tree].
void mark_paths(const int32_t* parent, const TreeState& state, std::vector<char>& marks) {
  std::fill(marks.begin() + 1, marks.end(), 0);
  for (int32_t last = state.first_live; last < state.nodes; ++last)
    for (int32_t node = last; node > 0 && !marks[node]; node = parent[node]) marks[node] = 1;
}

/// Unmarks all but the `limit` best of the marked nodes; the root does not count and stays marked.
void unmark_worst(const float* score, int64_t limit, std::vector<char>& marks) {
  std::vector<int32_t> order;
  for (int32_t node = 1; node < static_cast<int32_t>(marks.size()); ++node)
    if (marks[node]) order.push_back(node);
  if (static_cast<int64_t>(order.size()) <= limit) return;
  std::stable_sort(order.begin(), order.end(), [score](int32_t a, int32_t b) { return score[a] > score[b]; });
  for (size_t i = static_cast<size_t>(limit); i < order.size(); ++i) marks[order[i]] = 0;
}

}  // namespace

void run_on_cpu(const SelectCall& call) {
  std::vector<char> marks;           // [nodes of a tree] 1 if the node is kept
  std::vector<int32_t> kept_number;  // [nodes of a tree] number of each kept node in the kept tree
  for (int64_t tree = 0; tree < call.trees; ++tree) {
    const TreeState& state = call.states[tree];
    TORCH_CHECK(state.nodes >= 0 && state.nodes <= call.node_capacity, "select_nodes: tree ", tree, " has ",
                state.nodes, " nodes, expected at most ", call.node_capacity, ".");
    call.kept_states[tree] = select::state_of_kept(state, std::min(1, state.nodes));
    if (state.nodes <= 1) continue;
    marks.assign(state.nodes, 1);
    kept_number.assign(state.nodes, 0);
    if (call.rule.paths_to_last_level) mark_paths(call.parent + tree * call.node_capacity, state, marks);
    unmark_worst(call.score + tree * call.node_capacity, select::max_kept(call, state) - 1, marks);
    int32_t count = 1;
    for (int32_t node = 1; node < state.nodes; ++node) {
      if (!marks[node]) continue;
      kept_number[node] = count++;
      select::keep(call, tree, node, kept_number[node],
                   kept_number[call.parent[tree * call.node_capacity + node]]);
    }
    call.kept_states[tree].nodes = count;
  }
}

void select_nodes(const GrowingTrees& grown, const SelectRule& rule, GrowingTrees& kept) {
  const char* const name = "select_nodes";
  const at::Device device = device_of(name, grown.ids);
  const int64_t trees = grown.ids.size(0);
  const auto check = [&](const GrowingTrees& checked) {
    check_tensor(name, "ids", checked.ids, {trees, -1}, at::kLong, device);
    check_tensor(name, "parent", checked.parent, checked.ids.sizes(), at::kInt, device);
    check_tensor(name, "score", checked.score, checked.ids.sizes(), at::kFloat, device);
    check_tensor(name, "state", checked.state, {trees, tree_state_size}, at::kInt, device);
  };
  check(grown);
  check(kept);
  TORCH_CHECK(kept.ids.size(1) >= 1, name, ": no room for a root, expected room for a node or more.");
  if (trees == 0) return;
  run(name, grown.ids,
      SelectCall{.rule = rule,
                 .trees = trees,
                 .node_capacity = grown.ids.size(1),
                 .ids = grown.ids.const_data_ptr<int64_t>(),
                 .parent = grown.parent.const_data_ptr<int32_t>(),
                 .score = grown.score.const_data_ptr<float>(),
                 .states = static_cast<const TreeState*>(grown.state.const_data_ptr()),
                 .kept_capacity = kept.ids.size(1),
                 .kept_ids = kept.ids.mutable_data_ptr<int64_t>(),
                 .kept_parent = kept.parent.mutable_data_ptr<int32_t>(),
                 .kept_probability = kept.score.mutable_data_ptr<float>(),
                 .kept_states = static_cast<TreeState*>(kept.state.mutable_data_ptr())});
}

}  // namespace clover::kernels
