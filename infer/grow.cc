#include "infer/grow.h"

#include <algorithm>
#include <cmath>

#include "data/error.h"
#include "infer/static_tree.h"

namespace clover::infer {
namespace {

// Sums of fp32 probabilities that reach a bound exactly must not fail it by rounding.
constexpr double rounding = 1e-5;
constexpr int64_t automatic_width = 16;

// A node that may have children, and the row of the state that guesses them.
struct Sprout {
  int32_t node;
  int64_t row;
};

// One sequence's tree while it grows.
struct Plant {
  CandidateTree tree;
  int64_t budget;     // nodes, root excluded
  int64_t max_depth;  // the drafter's and the limit's
  StaticTree plan;    // fixed_tree: what the tree will look like, node by node
  std::vector<Sprout> live;
  int64_t left() const { return budget - (tree.size() - 1); }
};

// The best `width` guesses of every frontier row, best first.
struct Ranking {
  model::Guesses guesses;
  int64_t width;
  int64_t id(int64_t row, int64_t rank) const {
    return guesses.ids.const_data_ptr<int64_t>()[row * guesses.ids.size(1) + rank];
  }
  float probability(int64_t row, int64_t rank) const {
    const double logit = guesses.logits.const_data_ptr<float>()[row * guesses.logits.size(1) + rank];
    const double probability = std::exp(logit - guesses.log_sums.const_data_ptr<float>()[row]);
    return probability > 0 ? static_cast<float>(std::min(probability, 1.0)) : 0.0f;  // NaN: 0
  }
};

struct Child {
  int64_t id;
  int32_t parent;
  int64_t row;  // of the parent
  float joint;
};

// Children of one live node: in descending probability while their sum stays within top-p and none falls
// below its share of the best, which is kept whatever its probability.
void add_children(const CandidateTree& tree, const Sprout& sprout, const Ranking& guesses,
                  const GrowthRule& rule, std::vector<Child>& children) {
  const double best = guesses.probability(sprout.row, 0);
  double mass = 0;
  for (int64_t rank = 0; rank < guesses.width; ++rank) {
    const float probability = guesses.probability(sprout.row, rank);
    mass += probability;
    const bool unlikely = probability <= 0 || probability < rule.relative_cut * best * (1 - rounding);
    if (rank > 0 && (rule.policy == Policy::chain || unlikely || mass > rule.top_p + rounding)) break;
    const float joint = tree.probability_by_drafter[sprout.node] * probability;
    if (rule.policy == Policy::automatic && joint < rule.least_joint) break;
    children.push_back({guesses.id(sprout.row, rank), sprout.node, sprout.row, joint});
  }
}

// One level deeper: the likeliest children of all live nodes, as many as the budget holds.
void grow_by_probability(Plant& plant, const Ranking& guesses, const GrowthRule& rule) {
  std::vector<Child> children;
  for (const Sprout& sprout : plant.live) add_children(plant.tree, sprout, guesses, rule, children);
  std::sort(children.begin(), children.end(), [](const Child& a, const Child& b) {
    if (a.joint != b.joint) return a.joint > b.joint;
    return a.id != b.id ? a.id < b.id : a.parent < b.parent;
  });
  if (plant.left() < std::ssize(children)) children.resize(plant.left());
  plant.live.clear();
  for (const Child& child : children)
    plant.live.push_back({plant.tree.add(child.id, child.parent, child.joint), child.row});
  if (plant.left() == 0) plant.live.clear();
}

// One level deeper along the plan, whose node i becomes node i of the tree.
void grow_by_plan(Plant& plant, const Ranking& guesses) {
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

// How many guesses a row this plant may use at `depth` (of the live nodes).
int64_t wanted_width(const Plant& plant, Policy policy, int64_t depth) {
  if (plant.live.empty()) return 0;
  if (policy == Policy::chain) return 1;
  if (policy == Policy::clover) return plant.left();
  if (policy == Policy::automatic) return std::min(plant.left(), automatic_width);
  int64_t width = 1;
  for (int64_t i = 1; i < plant.plan.size(); ++i)
    if (plant.plan.depth[i] == depth + 1) width = std::max<int64_t>(width, plant.plan.rank[i] + 1);
  return width;
}

// How many guesses a row are asked for.
int64_t widest(std::span<const Plant> plants, Policy policy, int64_t depth, const model::Drafter& drafter) {
  int64_t width = 1;
  for (const Plant& plant : plants) width = std::max(width, wanted_width(plant, policy, depth));
  return std::min(width, drafter.head(depth).size());
}

std::vector<Plant> sow(const model::Drafter& drafter, std::span<const int64_t> roots, Policy policy,
                       std::span<const GrowthLimit> limits) {
  std::vector<Plant> plants;
  plants.reserve(roots.size());
  for (size_t i = 0; i < roots.size(); ++i) {
    const int64_t max_depth = std::min(limits[i].max_depth, drafter.max_depth());
    Plant plant{CandidateTree::of_root(roots[i]), limits[i].budget, max_depth, {}, {}};
    bool grows = policy != Policy::off && plant.budget > 0 && max_depth > 0;
    if (grows && policy == Policy::fixed_tree) {
      plant.plan = medusa_tree().cut(plant.budget, max_depth, drafter.head(0).size());
      grows = plant.plan.size() > 1;
    }
    if (grows) plant.live.push_back({0, static_cast<int64_t>(i)});
    plants.push_back(std::move(plant));
  }
  return plants;
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

// All plants that live, one level deeper.
void grow_level(std::vector<Plant>& plants, const Ranking& guesses, const GrowthRule& rule, int64_t depth) {
  for (Plant& plant : plants) {
    if (plant.live.empty()) continue;
    if (rule.policy == Policy::fixed_tree)
      grow_by_plan(plant, guesses);
    else
      grow_by_probability(plant, guesses, rule);
    if (depth + 1 == plant.max_depth) plant.live.clear();
  }
}

}  // namespace

std::vector<CandidateTree> grow(model::DraftGraphs& draft, const model::SeenRows& seen,
                                const GrowthRule& rule, std::span<const GrowthLimit> limits) {
  TORCH_CHECK(seen.segments.size() == limits.size(), "grow: as many limits as segments expected");
  const model::Drafter& drafter = draft.drafter();
  const std::vector<int64_t> last = last_rows(seen.segments);
  std::vector<Plant> plants = sow(drafter, picked(seen.next_ids, last), rule.policy, limits);

  Frontier frontier = gather(plants, drafter.regressive());
  int64_t width = widest(plants, rule.policy, 0, drafter);
  model::Guesses guesses = draft.prime(seen, picked(last, frontier.parents), width);
  for (int64_t depth = 0; !frontier.parents.empty(); ++depth) {
    if (depth > 0) {
      width = widest(plants, rule.policy, depth, drafter);
      guesses = draft.extend(frontier.parents, frontier.ids, width);
    }
    grow_level(plants, {guesses, width}, rule, depth);
    frontier = gather(plants, drafter.regressive());
  }

  std::vector<CandidateTree> trees;
  trees.reserve(plants.size());
  for (Plant& plant : plants) trees.push_back(std::move(plant.tree));
  return trees;
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
