#include "infer/cost_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace clover::infer {
namespace {

// Calibration: a bin starts as if it had seen this much probability confirmed, and halves what it knows every
// few hundred nodes.
constexpr double prior = 2;
constexpr double forgetting = 1 - 1.0 / 512;

// What grow may be asked to leave out: never the likely, always what is hopeless.
constexpr double least_joint_ever = 0.02, most_joint_asked = 0.3;

constexpr int64_t blind_nodes = 4;  // nodes a tree while costs are unknown

constexpr double advantage_memory = 32;  // trims remembered
constexpr double advantage_least = 8;    // trims before drafting may be given up
constexpr double hopeless = 0.95;        // what is seen to be this bad ..
constexpr double hopeless_least = 3;     // .. takes fewer
constexpr double advantage_needed = 1.01;
// Before a batch size was ever drafted for: heads whose every guess is accepted so often, for a drafting cost
// of so much of a pass, are as good as can be hoped for.
constexpr double hoped_acceptance = 0.8, hoped_drafting = 0.05;
constexpr double surprise_memory = 4;  // trims remembered when one says that drafting pays by now
// Steps between looks at whether drafting pays by now, doubled while it does not.
constexpr int64_t shortest_period = 64, longest_period = 1024;
constexpr int64_t probes = 2;  // the first pays for catching up, the second shows the cost

bool enough(double ratio, double weight) {
  return weight >= (ratio < hopeless ? hopeless_least : advantage_least);
}

// Bins are finer near 0, where most nodes are.
int bin_of(float probability, int bins) {
  const double clamped = probability > 0 ? std::min(double(probability), 1.0) : 0.0;
  return std::min(static_cast<int>(std::sqrt(clamped) * bins), bins - 1);
}

// The nodes of `tree` that `keep` marks, in their order; the root is kept anyway.
CandidateTree pruned(const CandidateTree& tree, const std::vector<char>& keep) {
  CandidateTree kept = CandidateTree::of_root(tree.ids[0]);
  std::vector<int32_t> place(tree.size(), 0);
  for (int32_t i = 1; i < tree.size(); ++i)
    if (keep[i])
      place[i] =
          kept.add(tree.ids[i], place[tree.parent[i]], tree.probability_by_drafter[i], tree.proposer[i]);
  return kept;
}

struct Worth {
  double expected;
  int32_t tree, node;
  Proposer proposer;
};

void prune(std::vector<CandidateTree>& trees, std::span<const Worth> kept) {
  std::vector<std::vector<char>> keep;
  for (const CandidateTree& tree : trees) keep.emplace_back(tree.size(), 0);
  for (const Worth& node : kept) keep[node.tree][node.node] = 1;
  for (size_t t = 0; t < trees.size(); ++t) trees[t] = pruned(trees[t], keep[t]);
}

// All nodes but roots, worthiest first; a parent stands before its children.
std::vector<Worth> ranked(const CostModel& model, const std::vector<CandidateTree>& trees) {
  std::vector<Worth> nodes;
  for (int32_t t = 0; t < std::ssize(trees); ++t) {
    const CandidateTree& tree = trees[t];
    std::vector<double> expected(tree.size(), 1.0);
    for (int32_t i = 1; i < tree.size(); ++i) {
      const double own = model.calibrated(tree.probability_by_drafter[i], tree.proposer[i]);
      expected[i] = std::min(own, expected[tree.parent[i]]);
      nodes.push_back({expected[i], t, i, tree.proposer[i]});
    }
  }
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const Worth& a, const Worth& b) { return a.expected > b.expected; });
  return nodes;
}

struct Choice {
  size_t nodes;
  double tokens_per_second;
};

// The number of nodes, from the worthiest, that makes expected tokens a second largest.
Choice best_of(const CostModel& model, std::span<const Worth> nodes, int64_t sequences, double drafting) {
  double tokens = static_cast<double>(sequences);
  Choice best{0, tokens / (model.pass_seconds(sequences) + drafting)};
  for (size_t n = 0; n < nodes.size(); ++n) {
    tokens += nodes[n].expected;
    const double rate = tokens / (model.pass_seconds(sequences + static_cast<int64_t>(n) + 1) + drafting);
    if (rate > best.tokens_per_second) best = {n + 1, rate};
  }
  return best;
}

}  // namespace

void CostModel::observe_draft(int64_t sequences, double seconds) {
  if (!behind_) drafts_.observe(sequences, seconds);
  behind_ = false;
}

void CostModel::observe_tree(const CandidateTree& tree, std::span<const int32_t> accepted_nodes) {
  std::vector<char> accepted(tree.size(), 0);
  for (const int32_t node : accepted_nodes) accepted.at(node) = 1;
  for (int64_t i = 1; i < tree.size(); ++i) {
    Bin& bin = bins_[static_cast<int>(tree.proposer[i])][bin_of(tree.probability_by_drafter[i], bins)];
    bin.hits = bin.hits * forgetting + accepted[i];
    bin.expected = bin.expected * forgetting + tree.probability_by_drafter[i];
  }
}

double CostModel::calibrated(float probability_by_drafter, Proposer proposer) const {
  const Bin& bin = bins_[static_cast<int>(proposer)][bin_of(probability_by_drafter, bins)];
  const double correction = (bin.hits + prior) / (bin.expected + prior);
  return std::clamp(probability_by_drafter * correction, 0.0, 1.0);
}

// A node pays when it raises tokens a second: acceptance above the seconds of its row times the rate without
// it, which is at least that of plain decoding.  Rows may be cheap only in numbers, so the best of several is
// asked; half of it, because calibration may find the drafter too modest.
double CostModel::least_worth(int64_t sequences) const {
  if (passes_.points() < 2 || sequences < 1) return least_joint_ever;
  const double plain = pass_seconds(sequences);
  double cheapest = 1;
  for (int64_t nodes = sequences; nodes <= 16 * sequences; nodes *= 2)
    cheapest = std::min(cheapest, (pass_seconds(sequences + nodes) - plain) / static_cast<double>(nodes));
  const double worth = cheapest * static_cast<double>(sequences) / plain;
  return std::clamp(worth / 2, least_joint_ever, most_joint_asked);
}

void CostModel::trim(std::vector<CandidateTree>& trees, bool drafted) {
  if (trees.empty()) return;
  std::vector<Worth> nodes = ranked(*this, trees);
  if (passes_.points() < 2) {
    std::vector<Worth> kept;
    std::vector<int64_t> taken(trees.size(), 0);
    for (const Worth& node : nodes)
      if (taken[node.tree]++ < blind_nodes) kept.push_back(node);
    return prune(trees, kept);
  }
  const int64_t sequences = std::ssize(trees);
  const Choice best = best_of(*this, nodes, sequences, drafted ? draft_seconds(sequences) : 0);
  prune(trees, std::span(nodes).first(best.nodes));
  if (!drafted) return;
  std::erase_if(nodes, [](const Worth& node) { return node.proposer == Proposer::heads; });
  const Choice without_heads = best_of(*this, nodes, sequences, 0);
  note_advantage(sequences, best.tokens_per_second / without_heads.tokens_per_second);
}

void CostModel::note_advantage(int64_t sequences, double ratio) {
  Advantage& advantage = advantages_[sequences];
  if (ratio >= advantage_needed &&
      advantage.ratio < advantage_needed) {  // times may have changed: look closer
    advantage.weight = std::min(advantage.weight, surprise_memory);
    period_ = shortest_period;
  }
  advantage.weight = std::min(advantage.weight + 1, advantage_memory);
  advantage.ratio += (ratio - advantage.ratio) / advantage.weight;
}

// Of this batch size, else of all within a factor of 1.5; nothing before enough trims were seen.
std::optional<double> CostModel::known_advantage(int64_t sequences) const {
  const auto own = advantages_.find(sequences);
  if (own != advantages_.end() && enough(own->second.ratio, own->second.weight)) return own->second.ratio;
  Advantage near;
  for (const auto& [size, advantage] : advantages_) {
    if (2 * std::max(size, sequences) > 3 * std::min(size, sequences)) continue;
    near.weight += advantage.weight;
    near.ratio += (advantage.ratio - near.ratio) * advantage.weight / near.weight;
  }
  if (near.weight == 0 || !enough(near.ratio, near.weight)) return std::nullopt;
  return near.ratio;
}

double CostModel::best_hope(int64_t sequences) const {
  const double plain = pass_seconds(sequences);
  double best = 0;
  for (const int64_t nodes : {sequences / 2, sequences, 2 * sequences}) {
    const double tokens = static_cast<double>(sequences) + hoped_acceptance * static_cast<double>(nodes);
    const double seconds = pass_seconds(sequences + nodes) + hoped_drafting * plain;
    best = std::max(best, tokens / static_cast<double>(sequences) * plain / seconds);
  }
  return best;
}

bool CostModel::worth_drafting(int64_t sequences) {
  std::optional<double> advantage = known_advantage(sequences);
  if (!advantage && passes_.points() >= 2 && best_hope(sequences) < advantage_needed) advantage = 0;
  if (!advantage || *advantage >= advantage_needed) {
    skipped_ = 0;
    period_ = shortest_period;
    return true;
  }
  const bool looks_again = ++skipped_ > period_ - probes;
  if (skipped_ == period_) {
    skipped_ = 0;
    period_ = std::min(2 * period_, longest_period);
  }
  behind_ |= !looks_again;
  return looks_again;
}

}  // namespace clover::infer
