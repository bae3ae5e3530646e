#include "infer/tree/grow.h"

#include <algorithm>

#include "data/files/error.h"
#include "infer/tree/static_tree.h"
#include "kernels/rows/activation.h"
#include "kernels/trees/tree_growth.h"

namespace clover::infer {
namespace {

constexpr int64_t automatic_width = 16;

// What grows of one sequence: nodes, root excluded, and how deep.  None where one of them is 0.
GrowthLimit usable(const GrowthLimit& limit, Policy policy, const model::Drafter& drafter) {
  const int64_t depth = std::min(limit.max_depth, drafter.max_depth());
  if (policy == Policy::off || limit.budget <= 0 || depth <= 0) return {0, 0};
  return {policy == Policy::chain ? std::min(limit.budget, drafter.max_depth()) : limit.budget, depth};
}

// By probability: chain, clover, automatic.

// How many guesses a row are looked at: no more can become children.
int64_t width_of(const GrowthRule& rule, std::span<const model::Growth::Tree> trees,
                 const model::Drafter& drafter) {
  if (rule.policy == Policy::chain) return 1;
  int64_t width = 1;
  for (const model::Growth::Tree& tree : trees) width = std::max(width, tree.most_nodes - 1);
  if (rule.policy == Policy::automatic) width = std::min(width, automatic_width);
  return std::min(width, drafter.head(0).size());
}

model::Growth growth_of(const GrowthRule& rule, std::span<const GrowthLimit> limits,
                        const model::Drafter& drafter) {
  model::Growth growth;
  const float least = rule.policy == Policy::automatic ? static_cast<float>(rule.least_joint) : 0;
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

void grow_by_probability(model::DraftGraphs& draft, const model::SeenRows& seen, const GrowthRule& rule,
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
    draft.prime(seen, {}, 1);
    return;
  }
  const kernels::GrowingTrees grown = draft.grow(seen, frontier, growth_of(rule, wanted, draft.drafter()));
  for (size_t i = 0; i < growing.size(); ++i)
    take(grown, static_cast<int64_t>(i), limits[growing[i]].max_depth, trees[growing[i]]);
}

// By a plan: fixed_tree.

// A node that may have children, and the row of the state that guesses them.
struct Sprout {
  int32_t node;
  int64_t row;
};

// One sequence's tree while it grows along a plan, which says what it will look like node by node.
struct Plant {
  CandidateTree& tree;
  StaticTree plan;
  std::vector<Sprout> live;
};

// The best guesses of every frontier row, best first.
struct Ranking {
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

// One level deeper along the plan, whose node i becomes node i of the tree.
void grow_level(Plant& plant, const Ranking& guesses) {
  std::vector<Sprout> grown;
  const int32_t depth = plant.plan.depth[plant.tree.size()];
  auto parent = plant.live.begin();  // the plan lists children in the order of their parents
  for (int64_t i = plant.tree.size(); i < plant.plan.size() && plant.plan.depth[i] == depth; ++i) {
    while (parent->node != plant.plan.parent[i]) ++parent;
    const int64_t rank = plant.plan.rank[i];
    const float joint =
        plant.tree.probability_by_drafter[parent->node] * guesses.probability(parent->row, rank);
    grown.push_back({plant.tree.add(guesses.id(parent->row, rank), parent->node, joint), parent->row});
  }
  std::erase_if(grown, [&](const Sprout& sprout) {
    const auto& parents = plant.plan.parent;
    return std::find(parents.begin(), parents.end(), sprout.node) == parents.end();
  });
  plant.live = std::move(grown);
}

// How many guesses a row are needed for the children of live nodes at `depth`.
int64_t widest(std::span<const Plant> plants, int64_t depth) {
  int64_t width = 1;
  for (const Plant& plant : plants) {
    for (int64_t i = 1; i < plant.plan.size() && !plant.live.empty(); ++i)
      if (plant.plan.depth[i] == depth + 1) width = std::max<int64_t>(width, plant.plan.rank[i] + 1);
  }
  return width;
}

// Rows of the next state: one for each live node, or one for a whole sequence when the drafter does not look
// at what was guessed.  Live nodes are moved to their new rows.
struct Frontier {
  std::vector<int64_t> parents, ids;
};
Frontier gather(std::vector<Plant>& plants, bool regressive) {
  Frontier frontier;
  for (Plant& plant : plants) {
    bool first = true;
    for (Sprout& sprout : plant.live) {
      if (regressive || first) {
        frontier.parents.push_back(sprout.row);
        frontier.ids.push_back(plant.tree.ids[sprout.node]);
      }
      sprout.row = std::ssize(frontier.parents) - 1;
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

void grow_by_plan(model::DraftGraphs& draft, const model::SeenRows& seen, std::span<const GrowthLimit> limits,
                  std::span<const int64_t> last, std::vector<CandidateTree>& trees) {
  const model::Drafter& drafter = draft.drafter();
  std::vector<Plant> plants;
  for (size_t i = 0; i < trees.size(); ++i) {
    const auto [budget, depth] = usable(limits[i], Policy::fixed_tree, drafter);
    Plant plant{trees[i], medusa_tree().cut(budget, depth, drafter.head(0).size()), {}};
    if (plant.plan.size() > 1) plant.live.push_back({0, static_cast<int64_t>(i)});
    plants.push_back(std::move(plant));
  }
  Frontier frontier = gather(plants, drafter.regressive());
  model::Guesses guesses = draft.prime(seen, picked(last, frontier.parents), widest(plants, 0));
  for (int64_t depth = 0; !frontier.parents.empty();) {
    for (Plant& plant : plants)
      if (!plant.live.empty()) grow_level(plant, {guesses});
    frontier = gather(plants, drafter.regressive());
    if (frontier.parents.empty()) break;
    guesses = draft.extend(frontier.parents, frontier.ids, widest(plants, ++depth));
  }
}

}  // namespace

std::vector<CandidateTree> grow(model::DraftGraphs& draft, const model::SeenRows& seen,
                                const GrowthRule& rule, std::span<const GrowthLimit> limits) {
  TORCH_CHECK(seen.segments.size() == limits.size(), "grow: as many limits as segments expected");
  const std::vector<int64_t> last = last_rows(seen.segments);
  std::vector<CandidateTree> trees;
  for (const int64_t row : last) trees.push_back(CandidateTree::of_root(seen.next_ids[row]));
  if (rule.policy == Policy::fixed_tree)
    grow_by_plan(draft, seen, limits, last, trees);
  else
    grow_by_probability(draft, seen, rule, limits, last, trees);
  return trees;
}

void begin_growing(model::DraftGraphs& draft, const model::JudgedRows& judged, const model::SeenRows& seen,
                   const GrowthRule& rule, std::span<const GrowthLimit> limits) {
  draft.begin(judged, seen, growth_of(rule, limits, draft.drafter()));
}

// Nodes stand level by level.
void take(const kernels::GrowingTrees& grown, int64_t index, int64_t max_depth, CandidateTree& tree) {
  const int64_t begin = index * grown.ids.size(1);
  const auto& state = static_cast<const kernels::TreeState*>(grown.state.const_data_ptr())[index];
  tree.reserve(state.nodes);
  for (int64_t at = begin + 1; at < begin + state.nodes; ++at) {
    const int32_t parent = grown.parent.const_data_ptr<int32_t>()[at];
    if (tree.depth[parent] >= max_depth) return;
    tree.add(grown.ids.const_data_ptr<int64_t>()[at], parent, grown.joint.const_data_ptr<float>()[at]);
  }
}

Policy parse_policy(const std::string& name) {
  for (const Policy policy :
       {Policy::automatic, Policy::off, Policy::chain, Policy::fixed_tree, Policy::clover})
    if (name == to_string(policy)) return policy;
  const bool planned = name == "beam" || name == "best-first";
  throw data::InputError("draft policy: \"" + name + "\" is " + (planned ? "not built yet" : "unknown") +
                         "; choose auto, off, chain, static or clover");
}

std::string to_string(Policy policy) {
  switch (policy) {
    case Policy::automatic:
      return "auto";
    case Policy::off:
      return "off";
    case Policy::chain:
      return "chain";
    case Policy::fixed_tree:
      return "static";
    case Policy::clover:
      return "clover";
  }
  return "";
}

}  // namespace clover::infer
