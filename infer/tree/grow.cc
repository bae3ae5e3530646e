#include "infer/tree/grow.h"

#include <algorithm>

#include "model/graphs/captured_sizes.h"

namespace clover::infer {
namespace {

using Admit = GrowthPolicy::Admit;
using Remain = GrowthPolicy::Remain;

// Most nodes of a tree while it grows under Admit::best_so_far.  It bounds the memory; further nodes are too
// improbable to matter.
constexpr int64_t max_grown_nodes = 2048;

/// `limit`, with a depth that the drafter and the rule allow; {0, 0} where no node besides the root may grow.
GrowthLimit usable_limit(const GrowthLimit& limit, const GrowthRule& rule, const model::Drafter& drafter) {
  const GrowthPolicy& policy = growth_policy(rule.policy);
  const int64_t depth = std::min(limit.max_depth, depth_of(rule, drafter));
  if (!policy.drafts || limit.budget <= 0 || depth <= 0) return {0, 0};
  return {limit.budget, depth};
}

/// The most nodes of a tree while it grows, the root included.
int64_t max_nodes(const GrowthRule& rule, int64_t budget, int64_t levels) {
  const int64_t width = width_of(rule);
  const GrowthPolicy& policy = growth_policy(rule.policy);
  switch (policy.admit) {
    case Admit::best_of_level:
      return 1 + width * levels;
    case Admit::best_so_far:
      return std::min(1 + std::min(width, budget) + (levels - 1) * std::min(width * width, budget),
                      max_grown_nodes);
    case Admit::until_full:
    case Admit::planned:
      break;
  }
  // A chain has one node a level.
  return 1 + (policy.max_children == 1 ? std::min(budget, levels) : budget);
}

/// `tree` in the form that the kernel reads.
std::vector<kernels::PlannedNode> planned_nodes(const StaticTree& tree) {
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

/// The limits of one tree in the form that DraftRunner reads.
model::Growth::TreeLimits tree_limits(const GrowthRule& rule, const GrowthLimit& limit, int64_t levels,
                                      const model::Drafter& drafter) {
  const GrowthPolicy& policy = growth_policy(rule.policy);
  const auto [budget, depth] = usable_limit(limit, rule, drafter);
  TORCH_CHECK(depth > 0, "grow: a tree of a node or more was expected");
  const float min_joint = policy.drops_improbable ? static_cast<float>(rule.min_joint_probability) : 0;
  const int64_t nodes = max_nodes(rule, budget, levels);
  model::Growth::TreeLimits tree{.max_nodes = nodes,
                                 .levels = depth,
                                 .min_joint_probability = min_joint,
                                 .max_kept = std::min(nodes, budget + 1),
                                 .plan = {}};
  if (policy.admit == Admit::planned) {
    tree.plan = planned_nodes(policy.plan().cut(budget, depth, drafter.head(0).outputs));
    tree.max_nodes = std::ssize(tree.plan);
  }
  return tree;
}

/// How many guesses of a row (the best ones) are looked at: as many as one node can get children.
int64_t max_guesses_per_row(const GrowthRule& rule, const std::vector<model::Growth::TreeLimits>& limits,
                            const model::Drafter& drafter) {
  const GrowthPolicy& policy = growth_policy(rule.policy);
  int64_t guesses = 1;
  for (const model::Growth::TreeLimits& tree : limits) {
    if (tree.plan.empty()) guesses = std::max(guesses, tree.max_nodes - 1);
    for (const kernels::PlannedNode& node : tree.plan) guesses = std::max<int64_t>(guesses, node.rank + 1);
  }
  guesses = std::min({guesses, policy.max_children, drafter.head(0).outputs});
  if (policy.default_width > 0) guesses = std::min(guesses, width_of(rule));
  return policy.softmax_over > 0 ? std::min(guesses, policy.softmax_over) : guesses;
}

/// The most live nodes of a level; 0: as many as the device computes well.
int64_t max_live_per_level(const GrowthRule& rule, const std::vector<model::Growth::TreeLimits>& limits) {
  int64_t live = width_of(rule);
  for (const model::Growth::TreeLimits& tree : limits)
    for (const kernels::PlannedNode& node : tree.plan) live = std::max<int64_t>(live, node.live_index + 1);
  return live;
}

/// The rule and limits in the form that DraftRunner reads, which runs the draft
/// (model/graphs/draft_runner.h).
model::Growth make_growth(const GrowthRule& rule, std::span<const GrowthLimit> limits,
                          const model::Drafter& drafter) {
  const GrowthPolicy& policy = growth_policy(rule.policy);
  model::Growth growth;
  growth.levels = depth_of(rule, drafter);
  for (const GrowthLimit& limit : limits)
    growth.limits.push_back(tree_limits(rule, limit, growth.levels, drafter));
  growth.softmax_over = policy.softmax_over;
  growth.max_live = max_live_per_level(rule, growth.limits);
  const ChildCuts cuts = cuts_of(rule);
  growth.level_rule = {.max_candidates = max_guesses_per_row(rule, growth.limits, drafter),
                       .top_p = static_cast<float>(cuts.top_p),
                       .relative_cut = static_cast<float>(cuts.relative_cut),
                       .by_log_probability = policy.by_log_probability,
                       .best_so_far = policy.admit == Admit::best_so_far};
  if (policy.admit == Admit::best_of_level) growth.level_rule.max_nodes_per_level = width_of(rule);
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
  const int64_t nodes = model::next_power_of_two(max_nodes(rule, budget, levels), model::min_tree_capacity);
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
  std::vector<GrowthLimit> growing_limits;
  for (size_t i = 0; i < trees.size(); ++i) {
    if (usable_limit(limits[i], rule, draft.drafter()).max_depth == 0) continue;
    growing.push_back(i);
    frontier.push_back(last[i]);
    growing_limits.push_back(limits[i]);
  }
  if (growing.empty()) {
    draft.read(input);  // nothing grows, but the drafter's own layers need these rows later
    return trees;
  }
  const kernels::GrowingTrees grown =
      draft.grow(input, frontier, make_growth(rule, growing_limits, draft.drafter()));
  for (size_t i = 0; i < growing.size(); ++i)
    add_nodes(grown, static_cast<int64_t>(i), limits[growing[i]].max_depth, trees[growing[i]]);
  return trees;
}

void begin_growing(model::DraftRunner& draft, const model::UnverifiedTrees& unverified,
                   const model::DraftInput& input, const GrowthRule& rule,
                   std::span<const GrowthLimit> limits) {
  draft.grow_ahead(unverified, input, make_growth(rule, limits, draft.drafter()));
}

// Nodes are in order of depth, so the first one that is too deep ends the loop.
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
