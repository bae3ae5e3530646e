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

constexpr double advantage_memory = 32;         // trims remembered
constexpr double min_trims = 8;                 // trims before drafting may stop
constexpr double clearly_bad = 0.95;            // tokens a second with heads / without that is surely a loss
constexpr double min_trims_if_clearly_bad = 3;  // trims before drafting may stop at such a ratio
constexpr double advantage_needed = 1.02;
// Predictions are corrected by what was realised, as if they had been right for prediction_prior tokens
// before; prediction_memory tokens are remembered.  Correction is needed because the best of many numbers of
// nodes is often the one whose cost was underestimated.
constexpr double prediction_prior = 64, prediction_memory = 1024;
// Excellent heads: every guess is accepted with optimistic_acceptance, and drafting costs
// optimistic_draft_cost of a pass, or what drafts_needed drafts have shown.  Where even they gain less than
// optimistic_speedup_needed, others lose.
constexpr double optimistic_acceptance = 0.8, optimistic_draft_cost = 0.05, optimistic_speedup_needed = 1.1;
constexpr double drafts_needed = 2;
constexpr double recovery_memory = 4;  // trims remembered when a trim predicts that drafting pays again
// Steps between probes of whether drafting pays again, doubled while it does not.  Probes are rarer where not
// even excellent heads would pay, because in a probe the drafter also reads all rows that it has skipped.
constexpr int64_t shortest_probe_interval = 64, hopeless_probe_interval = 512, longest_probe_interval = 1024;
// Steps with guesses before one without guesses measures plain decoding again.
constexpr int64_t max_steps_without_plain = 32, max_steps_without_plain_if_clear = 256;
constexpr double clear_gain = 1.25, gain_memory = 8;
constexpr int64_t probe_steps =
    2;  // steps of a probe: in the first the drafter reads what it skipped, the second shows the cost

bool weighs_enough(double ratio, double weight) {
  return weight >= (ratio < clearly_bad ? min_trims_if_clearly_bad : min_trims);
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

// The marginal seconds of a row in each sequence's tree: what a pass takes longer when the batch's rows
// double, all with that sequence's context, by the number of rows added.
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
  if (representative) drafts_.observe(sequences, levels_, seconds);
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
    steps_since_plain_ = 0;
    passes_.doubt(sequences);
    return prune(trees, {});
  }
  const Choice best = best_of(passes_, nodes, contexts, drafted > 0 ? draft_seconds(drafted) : 0);
  prune(trees, std::span(nodes).first(best.nodes));
  steps_since_plain_ = best.nodes > 0 ? steps_since_plain_ + 1 : 0;
  gain_ += (best.gain - gain_) / gain_memory;
  if (drafted == 0) return;
  if (best.nodes > 0) note_yield(trees, contexts, drafted);
  std::erase_if(nodes, [](const RankedNode& node) { return node.proposer == Proposer::heads; });
  const Choice without_heads = best_of(passes_, nodes, contexts, 0);
  note_advantage(sequences, best.rate() / without_heads.rate() * drafts_.best_over_last(drafted));
  prediction_.sequences = sequences;
  prediction_.tokens = best.tokens;
  prediction_.seconds = best.seconds;
}

void CostModel::note_yield(const std::vector<CandidateTree>& kept, std::span<const int64_t> contexts,
                           int64_t drafted) {
  const std::vector<double> costs = row_costs(passes_, contexts);
  std::vector<DraftCost::Yield::Level> levels(levels_);
  for (size_t t = 0; t < kept.size(); ++t) {
    const CandidateTree& tree = kept[t];
    for (int64_t i = 1; i < tree.size(); ++i) {
      if (tree.proposer[i] != Proposer::heads || tree.depth[i] > levels_) continue;
      levels[tree.depth[i] - 1].tokens += calibrated(tree.probability_by_drafter[i]);
      levels[tree.depth[i] - 1].seconds += costs[t];
    }
  }
  const double plain = passes_.at(std::ssize(contexts), sum(contexts));
  drafts_.observe({static_cast<double>(kept.size()), static_cast<double>(drafted), plain, levels});
}

int64_t CostModel::draft_levels(int64_t sequences, int64_t most) {
  return levels_ = drafts_.next_levels(sequences, most);
}

// While all steps have guesses, plain passes are not timed, and the scale that CostCurve shares among all row
// counts also rescales theirs: an underestimated row count would make plain passes seem ever more expensive.
bool CostModel::plain_is_due() const {
  return steps_since_plain_ >=
         (gain_ >= clear_gain ? max_steps_without_plain_if_clear : max_steps_without_plain);
}

void CostModel::note_advantage(int64_t sequences, double ratio) {
  Advantage& advantage = advantages_[sequences];
  if (ratio >= advantage_needed && advantage.ratio < advantage_needed) {  // conditions may have changed
    advantage.weight = std::min(advantage.weight, recovery_memory);
    probe_interval_ = shortest_probe_interval;
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
bool CostModel::last_probe_paid(int64_t sequences) const {
  const auto own = advantages_.find(sequences);
  return own != advantages_.end() && own->second.ratio >= advantage_needed;
}

double CostModel::optimistic_speedup(std::span<const int64_t> contexts) const {
  const int64_t sequences = std::ssize(contexts), positions = sum(contexts);
  const double plain = passes_.at(sequences, positions);
  const double known = drafts_.knows(sequences, drafts_needed) ? draft_seconds(sequences) : 0;
  const double drafting = std::max(optimistic_draft_cost * plain, known);
  double best = 0;
  for (const int64_t nodes : {sequences / 2, sequences, 2 * sequences}) {
    const double tokens = static_cast<double>(sequences) + optimistic_acceptance * static_cast<double>(nodes);
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
  const bool in_vain = !pays && !last_probe_paid(std::ssize(contexts)) && passes_.points() >= 2 &&
                       optimistic_speedup(contexts) < optimistic_speedup_needed;
  if (pays || (!advantage && !in_vain)) {
    steps_since_probe_ = 0;
    probe_interval_ = shortest_probe_interval;
    return true;
  }
  if (in_vain) probe_interval_ = std::max(probe_interval_, hopeless_probe_interval);
  const bool looks_again = ++steps_since_probe_ > probe_interval_ - probe_steps;
  if (steps_since_probe_ == probe_interval_) {
    steps_since_probe_ = 0;
    probe_interval_ = std::min(2 * probe_interval_, longest_probe_interval);
  }
  return looks_again;
}

}  // namespace clover::infer
