#include "infer/cost/cost_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace clover::infer {
namespace {

// A bin starts as if it had seen this much probability confirmed, and forgets half of its record every 350
// nodes.
constexpr double prior = 2;
// Corrections before anything was observed: probabilities of heads are right, those of matches twice too
// high.
constexpr double heads_assumed = 1.0, suffix_assumed = 0.5;
constexpr double forgetting = 1 - 1.0 / 512;

// Bounds of least_worth.
constexpr double smallest_least_joint = 0.02, largest_least_joint = 0.3;

// Costs and acceptance are known to a few percent, so a smaller predicted gain may be a loss.
constexpr double gain_needed = 1.04;

constexpr int64_t blind_nodes = 4;  // nodes a tree while costs are unknown

constexpr double advantage_memory = 32;  // trims remembered
constexpr double advantage_least = 8;    // trims before drafting may stop
constexpr double hopeless = 0.95;        // a ratio this bad ..
constexpr double hopeless_least = 3;     // .. takes fewer trims
constexpr double advantage_needed = 1.02;
// Predictions are corrected by what was realised, as if they had been right for prediction_prior tokens
// before; prediction_memory tokens are remembered.  Correction is needed because the best of many numbers of
// nodes is often the one whose cost was underestimated.
constexpr double prediction_prior = 64, prediction_memory = 1024;
// Excellent heads: every guess is accepted with hoped_acceptance, and drafting costs hoped_drafting of a
// pass, or what drafts_needed drafts have shown.  Where even they gain less than hope_needed, others lose.
constexpr double hoped_acceptance = 0.8, hoped_drafting = 0.05, hope_needed = 1.1;
constexpr double drafts_needed = 2;
constexpr double surprise_memory = 4;  // trims remembered when a trim predicts that drafting pays again
// Steps between looks at whether drafting pays again, doubled while it does not.  Looks are rarer where not
// even excellent heads would pay, because in a look the drafter also reads all rows that it has skipped.
constexpr int64_t shortest_period = 64, hopeless_period = 512, longest_period = 1024;
// Steps with guesses before one without guesses measures plain decoding again.
constexpr int64_t longest_unseen = 32, longest_unseen_where_clear = 256;
constexpr double clear_gain = 1.25, gain_memory = 8;
constexpr int64_t probes =
    2;  // steps of a look: in the first the drafter reads what it skipped, the second shows the cost

bool weighs_enough(double ratio, double weight) {
  return weight >= (ratio < hopeless ? hopeless_least : advantage_least);
}

// Bins are finer near 0, where most nodes are.
int bin_of(float probability, int bins) {
  const double clamped = probability > 0 ? std::min(double(probability), 1.0) : 0.0;
  return std::min(static_cast<int>(std::sqrt(clamped) * bins), bins - 1);
}

// The nodes of `tree` that `keep` marks, in their order, and the root.
CandidateTree pruned(const CandidateTree& tree, const std::vector<char>& keep) {
  CandidateTree kept = CandidateTree::of_root(tree.ids[0]);
  std::vector<int32_t> place(tree.size(), 0);
  for (int32_t i = 1; i < tree.size(); ++i)
    if (keep[i])
      place[i] =
          kept.add(tree.ids[i], place[tree.parent[i]], tree.probability_by_drafter[i], tree.proposer[i]);
  return kept;
}

struct RankedNode {
  double expected;
  int32_t tree, node;
  Proposer proposer;
};

void prune(std::vector<CandidateTree>& trees, std::span<const RankedNode> kept) {
  std::vector<std::vector<char>> keep;
  for (const CandidateTree& tree : trees) keep.emplace_back(tree.size(), 0);
  for (const RankedNode& node : kept) keep[node.tree][node.node] = 1;
  for (size_t t = 0; t < trees.size(); ++t) trees[t] = pruned(trees[t], keep[t]);
}

int64_t sum(std::span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// Seconds of one more row in each tree of the batch, in a pass of about twice as many rows.
std::vector<double> row_costs(const PassCost& passes, std::span<const int64_t> contexts) {
  const int64_t sequences = std::ssize(contexts), positions = sum(contexts);
  const double plain = passes.at(sequences, positions);
  std::vector<double> costs;
  for (const int64_t context : contexts) {
    const double more = passes.at(2 * sequences, positions + sequences * context) - plain;
    costs.push_back(std::max(more / static_cast<double>(sequences), 1e-9 * plain + 1e-12));
  }
  return costs;
}

// All nodes but roots, ranked by expected acceptance for the seconds of their row; a parent comes before its
// children.
std::vector<RankedNode> ranked(const CostModel& model, const std::vector<CandidateTree>& trees,
                               std::span<const int64_t> contexts) {
  std::vector<RankedNode> nodes;
  for (int32_t t = 0; t < std::ssize(trees); ++t) {
    const CandidateTree& tree = trees[t];
    std::vector<double> expected(tree.size(), 1.0);
    for (int32_t i = 1; i < tree.size(); ++i) {
      const double own = model.calibrated(tree.probability_by_drafter[i], tree.proposer[i]);
      expected[i] = std::min(own, expected[tree.parent[i]]);
      nodes.push_back({expected[i], t, i, tree.proposer[i]});
    }
  }
  const std::vector<double> costs = row_costs(model.passes(), contexts);
  std::stable_sort(nodes.begin(), nodes.end(), [&costs](const RankedNode& a, const RankedNode& b) {
    return a.expected * costs[b.tree] > b.expected * costs[a.tree];
  });
  return nodes;
}

struct Choice {
  size_t nodes = 0;
  double tokens = 0, seconds = 1;  // expected
  double gain = 1;                 // tokens a second / those without nodes
  double rate() const { return tokens / seconds; }
};

// How many of the ranked nodes, from the first, make expected tokens a second largest; 0 where that gains
// less than gain_needed.
Choice best_of(const PassCost& passes, std::span<const RankedNode> nodes, std::span<const int64_t> contexts,
               double drafting) {
  int64_t rows = std::ssize(contexts), positions = sum(contexts);
  double tokens = static_cast<double>(rows);
  const Choice none{0, tokens, passes.at(rows, positions) + drafting};
  Choice best = none;
  for (size_t n = 0; n < nodes.size(); ++n) {
    tokens += nodes[n].expected;
    positions += contexts[nodes[n].tree];
    const Choice choice{n + 1, tokens, passes.at(++rows, positions) + drafting};
    if (choice.rate() > best.rate()) best = choice;
  }
  best.gain = best.rate() / none.rate();
  return best.gain > gain_needed ? best : none;
}

}  // namespace

void CostModel::observe_pass(int64_t rows, int64_t positions, double seconds) {
  passes_.observe(rows, positions, seconds);
  prediction_.seconds_observed += seconds;
  prediction_.pass_observed = true;
}

void CostModel::observe_draft(int64_t sequences, double seconds, bool representative) {
  prediction_.seconds_observed += representative ? seconds : draft_seconds(sequences);
  if (representative) drafts_.observe(sequences, seconds);
}

void CostModel::Bin::add(bool hit, double probability) {
  hits = hits * forgetting + hit;
  expected = expected * forgetting + probability;
}

double CostModel::Bin::correction(double assumed) const {
  return (hits + prior * assumed) / (expected + prior);
}

void CostModel::observe_tree(const CandidateTree& tree, std::span<const int32_t> accepted_nodes) {
  prediction_.tokens_observed += static_cast<double>(accepted_nodes.size());
  std::vector<char> accepted(tree.size(), 0);
  for (const int32_t node : accepted_nodes) accepted.at(node) = 1;
  for (int64_t i = 1; i < tree.size(); ++i) {
    const float probability = tree.probability_by_drafter[i];
    ProposerRecord& of_proposer = proposers_[static_cast<int>(tree.proposer[i])];
    of_proposer.all.add(accepted[i], probability);
    of_proposer.by_probability[bin_of(probability, bins)].add(accepted[i], probability);
  }
}

// A bin that has seen little takes the correction of all bins: a proposer that exaggerates does so
// everywhere.
double CostModel::calibrated(float probability_by_drafter, Proposer proposer) const {
  const ProposerRecord& known = proposers_[static_cast<int>(proposer)];
  const double assumed = proposer == Proposer::heads ? heads_assumed : suffix_assumed;
  const Bin& bin = known.by_probability[bin_of(probability_by_drafter, bins)];
  return std::clamp(probability_by_drafter * bin.correction(known.all.correction(assumed)), 0.0, 1.0);
}

// A node pays where its acceptance exceeds the seconds of its row times the tokens a second without it, which
// are at least those of plain decoding.  Rows may be cheap only in large numbers, so the cheapest of several
// numbers counts; half of it, because calibration may raise the drafter's probabilities.
double CostModel::least_worth(std::span<const int64_t> contexts) const {
  if (passes_.points() < 2 || contexts.empty()) return smallest_least_joint;
  const int64_t sequences = std::ssize(contexts), positions = sum(contexts);
  const double plain = passes_.at(sequences, positions);
  double cheapest = 1;
  for (int64_t each = 1; each <= 16; each *= 2) {  // nodes a sequence
    const double seconds = passes_.at(sequences * (1 + each), positions * (1 + each));
    cheapest = std::min(cheapest, (seconds - plain) / static_cast<double>(sequences * each));
  }
  const double worth = cheapest * static_cast<double>(sequences) / plain;
  return std::clamp(worth / 2, smallest_least_joint, largest_least_joint);
}

void CostModel::trim(std::vector<CandidateTree>& trees, std::span<const int64_t> contexts, int64_t drafted) {
  if (trees.empty()) return;
  std::vector<RankedNode> nodes = ranked(*this, trees, contexts);
  if (passes_.points() < 2) {
    std::vector<RankedNode> kept;
    std::vector<int64_t> taken(trees.size(), 0);
    for (const RankedNode& node : nodes)
      if (taken[node.tree]++ < blind_nodes) kept.push_back(node);
    return prune(trees, kept);
  }
  const int64_t sequences = std::ssize(trees);
  if (plain_is_due()) {
    guessing_ = 0;
    passes_.doubt(sequences);
    return prune(trees, {});
  }
  const Choice best = best_of(passes_, nodes, contexts, drafted > 0 ? draft_seconds(drafted) : 0);
  prune(trees, std::span(nodes).first(best.nodes));
  guessing_ = best.nodes > 0 ? guessing_ + 1 : 0;
  gain_ += (best.gain - gain_) / gain_memory;
  if (drafted == 0) return;
  std::erase_if(nodes, [](const RankedNode& node) { return node.proposer == Proposer::heads; });
  const Choice without_heads = best_of(passes_, nodes, contexts, 0);
  note_advantage(sequences, best.rate() / without_heads.rate());
  prediction_.sequences = sequences;
  prediction_.tokens = best.tokens;
  prediction_.seconds = best.seconds;
}

// While all steps have guesses, plain passes are not timed, and CostCurve's common drift moves their cost
// with that of the others: an underestimated row count would make plain passes seem ever more expensive.
bool CostModel::plain_is_due() const {
  return guessing_ >= (gain_ >= clear_gain ? longest_unseen_where_clear : longest_unseen);
}

void CostModel::note_advantage(int64_t sequences, double ratio) {
  Advantage& advantage = advantages_[sequences];
  if (ratio >= advantage_needed && advantage.ratio < advantage_needed) {  // conditions may have changed
    advantage.weight = std::min(advantage.weight, surprise_memory);
    period_ = shortest_period;
  }
  advantage.weight = std::min(advantage.weight + 1, advantage_memory);
  advantage.ratio += (ratio - advantage.ratio) / advantage.weight;
}

double CostModel::Advantage::realised_ratio() const {
  return ratio * (realised * realised_weight + prediction_prior) / (realised_weight + prediction_prior);
}

void CostModel::check_prediction() {
  if (prediction_.sequences > 0 && prediction_.tokens_observed == 0)
    return;  // its pass has not been observed
  const Prediction made = std::exchange(prediction_, {});
  if (made.sequences == 0 || made.tokens_observed == 0 || !made.pass_observed || made.seconds_observed <= 0)
    return;
  const double realised = made.tokens_observed / made.tokens * made.seconds / made.seconds_observed;
  const double weight = static_cast<double>(made.sequences);
  Advantage& advantage = advantages_[made.sequences];
  advantage.realised_weight =
      std::min(advantage.realised_weight + weight, std::max(prediction_memory, weight));
  advantage.realised +=
      (std::clamp(realised, 0.25, 4.0) - advantage.realised) * weight / advantage.realised_weight;
}

// The mean for this batch size, else for all sizes within a factor of 1.5; nullopt before enough trims.
std::optional<double> CostModel::known_advantage(int64_t sequences) const {
  const auto own = advantages_.find(sequences);
  if (own != advantages_.end() && weighs_enough(own->second.ratio, own->second.weight))
    return own->second.realised_ratio();
  Advantage near;
  for (const auto& [size, advantage] : advantages_) {
    if (2 * std::max(size, sequences) > 3 * std::min(size, sequences)) continue;
    near.weight += advantage.weight;
    if (near.weight == 0) continue;
    near.ratio += (advantage.realised_ratio() - near.ratio) * advantage.weight / near.weight;
  }
  if (near.weight == 0 || !weighs_enough(near.ratio, near.weight)) return std::nullopt;
  return near.ratio;
}

/// Whether the last trim of a batch of that size predicted that drafting pays.
bool CostModel::last_look_paid(int64_t sequences) const {
  const auto own = advantages_.find(sequences);
  return own != advantages_.end() && own->second.ratio >= advantage_needed;
}

double CostModel::best_hope(std::span<const int64_t> contexts) const {
  const int64_t sequences = std::ssize(contexts), positions = sum(contexts);
  const double plain = passes_.at(sequences, positions);
  const double known = drafts_.knows(sequences, drafts_needed) ? drafts_.at(sequences) : 0;
  const double drafting = std::max(hoped_drafting * plain, known);
  double best = 0;
  for (const int64_t nodes : {sequences / 2, sequences, 2 * sequences}) {
    const double tokens = static_cast<double>(sequences) + hoped_acceptance * static_cast<double>(nodes);
    const double seconds =
        passes_.at(sequences + nodes, positions + positions / sequences * nodes) + drafting;
    best = std::max(best, tokens / static_cast<double>(sequences) * plain / seconds);
  }
  return best;
}

bool CostModel::worth_drafting(std::span<const int64_t> contexts) {
  check_prediction();
  const std::optional<double> advantage = known_advantage(std::ssize(contexts));
  const bool pays = advantage && *advantage >= advantage_needed;
  const bool in_vain = !pays && !last_look_paid(std::ssize(contexts)) && passes_.points() >= 2 &&
                       best_hope(contexts) < hope_needed;
  if (pays || (!advantage && !in_vain)) {
    skipped_ = 0;
    period_ = shortest_period;
    return true;
  }
  if (in_vain) period_ = std::max(period_, hopeless_period);
  const bool looks_again = ++skipped_ > period_ - probes;
  if (skipped_ == period_) {
    skipped_ = 0;
    period_ = std::min(2 * period_, longest_period);
  }
  return looks_again;
}

}  // namespace clover::infer
