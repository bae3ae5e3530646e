#include "infer/tree/grow.h"

#include <algorithm>

#include "model/graphs/captured_sizes.h"

namespace clover::infer {
namespace {

using Admit = GrowthPolicy::Admit;
using Remain = GrowthPolicy::Remain;

// Most nodes of a tree while it grows, which bounds its memory: what lies beyond is too improbable to matter.
constexpr int64_t most_grown_nodes = 2048;

/// The limit that one sequence's tree can reach; {0, 0} where it has no room for a node.
GrowthLimit usable(const GrowthLimit& limit, const GrowthRule& rule, const model::Drafter& drafter) {
  const GrowthPolicy& policy = growth_policy(rule.policy);
  const int64_t depth = std::min(limit.max_depth, depth_of(rule, drafter));
  if (!policy.drafts || limit.budget <= 0 || depth <= 0) return {0, 0};
  return {limit.budget, depth};
}

/// Nodes of a tree while it grows, the root included.
int64_t most_nodes(const GrowthRule& rule, int64_t budget, int64_t levels) {
  const int64_t width = width_of(rule);
  const GrowthPolicy& policy = growth_policy(rule.policy);
  switch (policy.admit) {
    case Admit::width:
      return 1 + width * levels;
    case Admit::best_so_far:
      return std::min(1 + std::min(width, budget) + (levels - 1) * std::min(width * width, budget),
                      most_grown_nodes);
    case Admit::until_full:
    case Admit::planned:
      break;
  }
  // A chain has one node a level.
  return 1 + (policy.most_children == 1 ? std::min(budget, levels) : budget);
}

/// The plan for the kernel: of each node its parent, its rank, and its index among the nodes with
/// children of its level.
std::vector<kernels::PlannedNode> planned(const StaticTree& tree) {
  std::vector<kernels::PlannedNode> nodes;
  std::vector<char> has_children(tree.size(), 0);
  for (int64_t i = 1; i < tree.size(); ++i) has_children[tree.parent[i]] = 1;
  int32_t live_index = 0;
  for (int64_t i = 0; i < tree.size(); ++i) {
    if (i > 0 && tree.depth[i] != tree.depth[i - 1]) live_index = 0;
    nodes.push_back({tree.parent[i], tree.rank[i], has_children[i] ? live_index++ : -1});
  }
  return nodes;
}

model::Growth::TreeLimits limits_of(const GrowthRule& rule, const GrowthLimit& limit, int64_t levels,
                                    const model::Drafter& drafter) {
  const GrowthPolicy& policy = growth_policy(rule.policy);
  const auto [budget, depth] = usable(limit, rule, drafter);
  TORCH_CHECK(depth > 0, "grow: a tree of a node or more was expected");
  const float least = policy.drops_improbable ? static_cast<float>(rule.least_joint) : 0;
  const int64_t most = most_nodes(rule, budget, levels);
  model::Growth::TreeLimits tree{.most_nodes = most,
                                 .levels = depth,
                                 .least_joint = least,
                                 .most_kept = std::min(most, budget + 1),
                                 .plan = {}};
  if (policy.admit == Admit::planned) {
    tree.plan = planned(policy.plan().cut(budget, depth, drafter.head(0).outputs));
    tree.most_nodes = std::ssize(tree.plan);
  }
  return tree;
}

/// How many guesses of a row are looked at: no more can become children of one node.
int64_t guesses_of_a_row(const GrowthRule& rule, const std::vector<model::Growth::TreeLimits>& limits,
                         const model::Drafter& drafter) {
  const GrowthPolicy& policy = growth_policy(rule.policy);
  int64_t most = 1;
  for (const model::Growth::TreeLimits& tree : limits) {
    if (tree.plan.empty()) most = std::max(most, tree.most_nodes - 1);
    for (const kernels::PlannedNode& node : tree.plan) most = std::max<int64_t>(most, node.rank + 1);
  }
  most = std::min({most, policy.most_children, drafter.head(0).outputs});
  if (policy.default_width > 0) most = std::min(most, width_of(rule));
  return policy.softmax_over > 0 ? std::min(most, policy.softmax_over) : most;
}

/// Live nodes of a level at most; 0: as many as the device computes well.
int64_t live_of_a_level(const GrowthRule& rule, const std::vector<model::Growth::TreeLimits>& limits) {
  int64_t most = width_of(rule);
  for (const model::Growth::TreeLimits& tree : limits)
    for (const kernels::PlannedNode& node : tree.plan) most = std::max<int64_t>(most, node.live_index + 1);
  return most;
}

model::Growth growth_of(const GrowthRule& rule, std::span<const GrowthLimit> limits,
                        const model::Drafter& drafter) {
  const GrowthPolicy& policy = growth_policy(rule.policy);
  model::Growth growth;
  growth.levels = depth_of(rule, drafter);
  for (const GrowthLimit& limit : limits)
    growth.limits.push_back(limits_of(rule, limit, growth.levels, drafter));
  growth.softmax_over = policy.softmax_over;
  growth.most_live = live_of_a_level(rule, growth.limits);
  const ChildCuts cuts = cuts_of(rule);
  growth.level_rule = {.max_candidates = guesses_of_a_row(rule, growth.limits, drafter),
                       .top_p = static_cast<float>(cuts.top_p),
                       .relative_cut = static_cast<float>(cuts.relative_cut),
                       .by_log_probability = policy.by_log_probability,
                       .best_so_far = policy.admit == Admit::best_so_far};
  if (policy.admit == Admit::width) growth.level_rule.most_a_level = width_of(rule);
  if (policy.remain != Remain::all)
    growth.select = {policy.remain == Remain::paths_to_last_level, policy.by_log_probability};
  return growth;
}

/// Index of the last row of each segment.
std::vector<int64_t> last_rows(std::span<const model::Segment> segments) {
  std::vector<int64_t> rows;
  int64_t count = 0;
  for (const model::Segment& segment : segments) rows.push_back((count += segment.count) - 1);
  return rows;
}

}  // namespace

int64_t width_of(const GrowthRule& rule) {
  const GrowthPolicy& policy = growth_policy(rule.policy);
  return policy.default_width > 0 && rule.width > 0 ? rule.width : policy.default_width;
}

ChildCuts cuts_of(const GrowthRule& rule) {
  return growth_policy(rule.policy).own_cuts.value_or(ChildCuts{rule.top_p, rule.relative_cut});
}

int64_t depth_of(const GrowthRule& rule, const model::Drafter& drafter) {
  return rule.depth > 0 ? std::min(rule.depth, drafter.max_depth()) : drafter.trained_depth();
}

int64_t max_guesses_written(const GrowthRule& rule, const model::Drafter& drafter, int64_t budget) {
  const int64_t levels = depth_of(rule, drafter), width = width_of(rule);
  const int64_t nodes = model::power_of_two(most_nodes(rule, budget, levels), model::min_tree_room);
  return width > 0 ? model::max_guesses_written(levels, width, nodes) : nodes - 1;
}

std::vector<CandidateTree> grow(model::DraftRunner& draft, const model::DraftInput& input,
                                const GrowthRule& rule, std::span<const GrowthLimit> limits) {
  TORCH_CHECK(input.segments.size() == limits.size(), "grow: as many limits as segments expected");
  const std::vector<int64_t> last = last_rows(input.segments);
  std::vector<CandidateTree> trees;
  for (const int64_t row : last) trees.push_back(CandidateTree::of_root(input.next_ids[row]));
  std::vector<size_t> growing;
  std::vector<int64_t> frontier;
  std::vector<GrowthLimit> wanted;
  for (size_t i = 0; i < trees.size(); ++i) {
    if (usable(limits[i], rule, draft.drafter()).max_depth == 0) continue;
    growing.push_back(i);
    frontier.push_back(last[i]);
    wanted.push_back(limits[i]);
  }
  if (growing.empty()) {
    draft.read(input);  // its own layers hold these rows from now on
    return trees;
  }
  const kernels::GrowingTrees grown = draft.grow(input, frontier, growth_of(rule, wanted, draft.drafter()));
  for (size_t i = 0; i < growing.size(); ++i)
    add_nodes(grown, static_cast<int64_t>(i), limits[growing[i]].max_depth, trees[growing[i]]);
  return trees;
}

void begin_growing(model::DraftRunner& draft, const model::UnverifiedTrees& unverified,
                   const model::DraftInput& input, const GrowthRule& rule,
                   std::span<const GrowthLimit> limits) {
  draft.begin(unverified, input, growth_of(rule, limits, draft.drafter()));
}

// Nodes are in order of their level.
void add_nodes(const kernels::GrowingTrees& grown, int64_t index, int64_t max_depth, CandidateTree& tree) {
  const int64_t begin = index * grown.ids.size(1);
  const auto& state = static_cast<const kernels::TreeState*>(grown.state.const_data_ptr())[index];
  tree.reserve(state.nodes);
  for (int64_t at = begin + 1; at < begin + state.nodes; ++at) {
    const int32_t parent = grown.parent.const_data_ptr<int32_t>()[at];
    if (tree.depth[parent] >= max_depth) return;
    tree.add(grown.ids.const_data_ptr<int64_t>()[at], parent, grown.score.const_data_ptr<float>()[at]);
  }
}

}  // namespace clover::infer
