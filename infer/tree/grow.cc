#include "infer/tree/grow.h"

#include <algorithm>

#include "kernels/rows/activation.h"
#include "kernels/trees/tree_growth.h"

namespace clover::infer {
namespace {

using Method = GrowthPolicy::Method;

/// The limit that one sequence's tree can reach under `policy`; {0, 0} where it has no room for a node.
GrowthLimit usable(const GrowthLimit& limit, Policy policy, const model::Drafter& drafter) {
  const GrowthPolicy& about = growth_policy(policy);
  const int64_t depth = std::min(limit.max_depth, drafter.max_depth());
  if (about.method == Method::none || limit.budget <= 0 || depth <= 0) return {0, 0};
  // A chain has one node a level.
  return {about.most_children == 1 ? std::min(limit.budget, drafter.max_depth()) : limit.budget, depth};
}

// Method::by_probability.

/// How many guesses of a row are looked at: no more can become children of one node.
int64_t width_of(const GrowthRule& rule, std::span<const model::Growth::Tree> trees,
                 const model::Drafter& drafter) {
  int64_t width = 1;
  for (const model::Growth::Tree& tree : trees) width = std::max(width, tree.most_nodes - 1);
  return std::min({width, growth_policy(rule.policy).most_children, drafter.head(0).size()});
}

model::Growth growth_of(const GrowthRule& rule, std::span<const GrowthLimit> limits,
                        const model::Drafter& drafter) {
  model::Growth growth;
  const float least = growth_policy(rule.policy).drops_improbable ? static_cast<float>(rule.least_joint) : 0;
  for (const GrowthLimit& limit : limits) {
    const auto [budget, depth] = usable(limit, rule.policy, drafter);
    TORCH_CHECK(depth > 0, "grow: a tree of a node or more was expected");
    growth.trees.push_back({budget + 1, depth, least});
  }
  growth.rule = {.width = width_of(rule, growth.trees, drafter),
                 .top_p = static_cast<float>(rule.top_p),
                 .relative_cut = static_cast<float>(rule.relative_cut)};
  return growth;
}

void grow_by_probability(model::DraftGraphs& draft, const model::DraftInput& input, const GrowthRule& rule,
                         std::span<const GrowthLimit> limits, std::span<const int64_t> last,
                         std::vector<CandidateTree>& trees) {
  std::vector<size_t> growing;
  std::vector<int64_t> frontier;
  std::vector<GrowthLimit> wanted;
  for (size_t i = 0; i < trees.size(); ++i) {
    if (usable(limits[i], rule.policy, draft.drafter()).max_depth == 0) continue;
    growing.push_back(i);
    frontier.push_back(last[i]);
    wanted.push_back(limits[i]);
  }
  if (growing.empty()) {
    draft.prime(input, {}, 1);
    return;
  }
  const kernels::GrowingTrees grown = draft.grow(input, frontier, growth_of(rule, wanted, draft.drafter()));
  for (size_t i = 0; i < growing.size(); ++i)
    add_nodes(grown, static_cast<int64_t>(i), limits[growing[i]].max_depth, trees[growing[i]]);
}

// Method::by_plan.

// A node that gets children, and the row of the draft's state that guesses them.
struct LiveNode {
  int32_t index;  // in the tree
  int64_t row;
};

// One sequence's tree while it grows: its node i is node i of the plan.
struct PlannedTree {
  CandidateTree& nodes;
  StaticTree plan;
  std::vector<LiveNode> live;
};

// The best guesses at every row of the draft's state, best first.
struct RankedGuesses {
  model::Guesses guesses;
  int64_t id(int64_t row, int64_t rank) const {
    return guesses.ids.const_data_ptr<int64_t>()[row * guesses.ids.size(1) + rank];
  }
  float probability(int64_t row, int64_t rank) const {
    const float logit = guesses.logits.const_data_ptr<float>()[row * guesses.logits.size(1) + rank];
    const float probability = kernels::exp_f32(logit - guesses.log_sums.const_data_ptr<float>()[row]);
    return probability > 0 ? std::min(probability, 1.0f) : 0.0f;  // NaN: 0
  }
};

// Adds the next level of the plan.
void grow_level(PlannedTree& tree, const RankedGuesses& guesses) {
  std::vector<LiveNode> grown;
  const int32_t depth = tree.plan.depth[tree.nodes.size()];
  auto parent = tree.live.begin();  // the plan lists children in the order of their parents
  for (int64_t i = tree.nodes.size(); i < tree.plan.size() && tree.plan.depth[i] == depth; ++i) {
    while (parent->index != tree.plan.parent[i]) ++parent;
    const int64_t rank = tree.plan.rank[i];
    const float joint =
        tree.nodes.probability_by_drafter[parent->index] * guesses.probability(parent->row, rank);
    grown.push_back({tree.nodes.add(guesses.id(parent->row, rank), parent->index, joint), parent->row});
  }
  std::erase_if(grown, [&](const LiveNode& node) {
    const auto& parents = tree.plan.parent;
    return std::find(parents.begin(), parents.end(), node.index) == parents.end();
  });
  tree.live = std::move(grown);
}

// How many guesses a row the children of nodes at `depth` need.
int64_t widest(std::span<const PlannedTree> planned, int64_t depth) {
  int64_t width = 1;
  for (const PlannedTree& tree : planned) {
    for (int64_t i = 1; i < tree.plan.size() && !tree.live.empty(); ++i)
      if (tree.plan.depth[i] == depth + 1) width = std::max<int64_t>(width, tree.plan.rank[i] + 1);
  }
  return width;
}

// The rows to draft from next: row j continues row parents[j] of the present state with token ids[j].
struct Frontier {
  std::vector<int64_t> parents, ids;
};
// One row for each live node, or one a tree where the drafter does not read its guesses; notes it in the
// nodes.
Frontier gather(std::vector<PlannedTree>& planned, bool regressive) {
  Frontier frontier;
  for (PlannedTree& tree : planned) {
    bool first = true;
    for (LiveNode& node : tree.live) {
      if (regressive || first) {
        frontier.parents.push_back(node.row);
        frontier.ids.push_back(tree.nodes.ids[node.index]);
      }
      node.row = std::ssize(frontier.parents) - 1;
      first = false;
    }
  }
  return frontier;
}

// Index of the last row of each segment.
std::vector<int64_t> last_rows(std::span<const model::Segment> segments) {
  std::vector<int64_t> rows;
  int64_t count = 0;
  for (const model::Segment& segment : segments) rows.push_back((count += segment.count) - 1);
  return rows;
}

std::vector<int64_t> picked(std::span<const int64_t> values, std::span<const int64_t> indices) {
  std::vector<int64_t> some;
  for (const int64_t index : indices) some.push_back(values[index]);
  return some;
}

void grow_by_plan(model::DraftGraphs& draft, const model::DraftInput& input, Policy policy,
                  std::span<const GrowthLimit> limits, std::span<const int64_t> last,
                  std::vector<CandidateTree>& trees) {
  const model::Drafter& drafter = draft.drafter();
  std::vector<PlannedTree> planned;
  for (size_t i = 0; i < trees.size(); ++i) {
    const auto [budget, depth] = usable(limits[i], policy, drafter);
    PlannedTree tree{trees[i], growth_policy(policy).plan().cut(budget, depth, drafter.head(0).size()), {}};
    if (tree.plan.size() > 1) tree.live.push_back({0, static_cast<int64_t>(i)});
    planned.push_back(std::move(tree));
  }
  Frontier frontier = gather(planned, drafter.regressive());
  model::Guesses guesses = draft.prime(input, picked(last, frontier.parents), widest(planned, 0));
  for (int64_t depth = 0; !frontier.parents.empty();) {
    for (PlannedTree& tree : planned)
      if (!tree.live.empty()) grow_level(tree, {guesses});
    frontier = gather(planned, drafter.regressive());
    if (frontier.parents.empty()) break;
    guesses = draft.extend(frontier.parents, frontier.ids, widest(planned, ++depth));
  }
}

}  // namespace

std::vector<CandidateTree> grow(model::DraftGraphs& draft, const model::DraftInput& input,
                                const GrowthRule& rule, std::span<const GrowthLimit> limits) {
  TORCH_CHECK(input.segments.size() == limits.size(), "grow: as many limits as segments expected");
  const std::vector<int64_t> last = last_rows(input.segments);
  std::vector<CandidateTree> trees;
  for (const int64_t row : last) trees.push_back(CandidateTree::of_root(input.next_ids[row]));
  if (growth_policy(rule.policy).method == Method::by_plan)
    grow_by_plan(draft, input, rule.policy, limits, last, trees);
  else
    grow_by_probability(draft, input, rule, limits, last, trees);
  return trees;
}

void begin_growing(model::DraftGraphs& draft, const model::UnverifiedTrees& trees,
                   const model::DraftInput& input, const GrowthRule& rule,
                   std::span<const GrowthLimit> limits) {
  draft.begin(trees, input, growth_of(rule, limits, draft.drafter()));
}

// Nodes are in order of their level.
void add_nodes(const kernels::GrowingTrees& grown, int64_t index, int64_t max_depth, CandidateTree& tree) {
  const int64_t begin = index * grown.ids.size(1);
  const auto& state = static_cast<const kernels::TreeState*>(grown.state.const_data_ptr())[index];
  tree.reserve(state.nodes);
  for (int64_t at = begin + 1; at < begin + state.nodes; ++at) {
    const int32_t parent = grown.parent.const_data_ptr<int32_t>()[at];
    if (tree.depth[parent] >= max_depth) return;
    tree.add(grown.ids.const_data_ptr<int64_t>()[at], parent, grown.joint.const_data_ptr<float>()[at]);
  }
}

}  // namespace clover::infer
