#include "infer/cost/cost_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace clover::infer {
namespace {

// Bin::correction adds a prior to a bin's sums: this to `expected`, and this times the correction that is
// assumed for the bin to `hits`.  It does not fade as the sums do.
constexpr double prior_expected = 2;
// A bin's sums are multiplied by this for each node, so that a node weighs half after 350 later ones.
constexpr double retention = 1 - 1.0 / 512;
// Corrections (accepted / proposed) that are assumed before anything was observed: probabilities of heads are
// right, those of guesses from the text are twice too high.
constexpr double heads_assumed = 1.0, suffix_assumed = 0.5;

// Bounds of CostModel::min_joint_probability.
constexpr double smallest_min_joint_probability = 0.02, largest_min_joint_probability = 0.3;

constexpr int64_t nodes_without_costs = 4;  // nodes that stay in a tree while costs are unknown

constexpr double advantage_memory = 32;         // trims over which an advantage is averaged
constexpr double min_trims = 8;                 // trims before drafting may stop
constexpr double clearly_bad = 0.95;            // tokens per second with heads / without: surely a loss
constexpr double min_trims_if_clearly_bad = 3;  // trims before drafting may stop at such a ratio
constexpr double min_advantage = 1.02;  // tokens per second with heads / without at which drafting pays
// Predictions are corrected by what was observed, averaged over prediction_memory sequence-steps (steps times
// sequences).  The correction starts as if predictions had been right for prediction_prior of them.  It is
// needed because the number of nodes that seems best is often one whose cost was underestimated.
constexpr double prediction_prior = 64, prediction_memory = 1024;
// Excellent heads, for CostModel::optimistic_speedup: every guess is accepted with probability
// optimistic_acceptance.  Drafting takes at least optimistic_draft_cost times the seconds of a pass, and,
// once min_drafts were timed, at least the expected seconds of a draft of one level.  Where even such heads
// gain less than the factor min_optimistic_speedup, other heads are assumed to lose.
constexpr double optimistic_acceptance = 0.8, optimistic_draft_cost = 0.05, min_optimistic_speedup = 1.1;
constexpr double min_drafts = 2;
// When a trim predicts that drafting pays and the mean of earlier ones does not, these count as no more than
// this many.
constexpr double max_trims_on_recovery = 4;
// Steps between probes of whether drafting pays again; doubled while it does not.  Probes are rarer where not
// even excellent heads would pay, because in a probe the drafter also reads all rows that it has skipped.
constexpr int64_t min_probe_interval = 64, hopeless_probe_interval = 512, max_probe_interval = 1024;
// After so many steps with guesses one step has none, so that plain decoding is timed anew.
constexpr int64_t max_steps_without_plain = 32, max_steps_without_plain_if_clear = 256;
constexpr double clear_gain = 1.25;  // tokens per second with guesses / without at which they clearly pay
constexpr double gain_memory = 8;    // steps over which gain_ is averaged
// Steps of a probe: in the first the drafter reads what it skipped, the second shows what a draft costs.
constexpr int64_t probe_steps = 2;

/// Whether so many trims are enough to trust the ratio of tokens per second that they predict.
bool enough_trims(double ratio, double trims) {
  return trims >= (ratio < clearly_bad ? min_trims_if_clearly_bad : min_trims);
}

// Bins are finer near 0, where most nodes are.
int bin_of(float probability, int bins) {
  const double clamped = probability > 0 ? std::min(double(probability), 1.0) : 0.0;
  return std::min(static_cast<int>(std::sqrt(clamped) * bins), bins - 1);
}

}  // namespace

void CostModel::observe_pass(int64_t rows, int64_t attended_tokens, double seconds) {
  passes_.observe(rows, attended_tokens, seconds);
  prediction_.seconds_observed += seconds;
  prediction_.pass_timed = true;
}

void CostModel::observe_draft(int64_t sequences, double seconds, bool representative) {
  prediction_.seconds_observed += representative ? seconds : draft_seconds(sequences);
  if (representative) drafts_.observe(sequences, levels_, seconds);
}

void CostModel::Bin::add(bool hit, double probability) {
  hits = hits * retention + hit;
  expected = expected * retention + probability;
}

double CostModel::Bin::correction(double assumed) const {
  return (hits + prior_expected * assumed) / (expected + prior_expected);
}

void CostModel::observe_tree(const CandidateTree& tree, std::span<const int32_t> accepted_nodes) {
  prediction_.tokens_observed += static_cast<double>(accepted_nodes.size());
  std::vector<char> accepted(tree.size(), 0);
  for (const int32_t node : accepted_nodes) accepted.at(node) = 1;
  for (int64_t i = 1; i < tree.size(); ++i) {
    const float probability = tree.proposed_probability[i];
    ProposerRecord& record = proposers_[static_cast<int>(tree.proposer[i])];
    record.overall.add(accepted[i], probability);
    record.by_probability[bin_of(probability, bins)].add(accepted[i], probability);
  }
}

// A bin with few nodes takes the correction of all bins together, because a proposer that exaggerates does so
// at all probabilities.
double CostModel::calibrated_probability(float proposed_probability, Proposer proposer) const {
  const ProposerRecord& record = proposers_[static_cast<int>(proposer)];
  const double assumed = proposer == Proposer::heads ? heads_assumed : suffix_assumed;
  const Bin& bin = record.by_probability[bin_of(proposed_probability, bins)];
  return std::clamp(proposed_probability * bin.correction(record.overall.correction(assumed)), 0.0, 1.0);
}

// A node breaks even where its acceptance equals the seconds that its row adds, times the tokens per second
// of plain decoding.  Rows may be cheap only in large numbers, so the seconds are those of the cheapest of
// several numbers of rows.  The bound is half of the break-even, because calibrated_probability may exceed
// the proposed one.
double CostModel::min_joint_probability(std::span<const int64_t> context_lengths) const {
  if (passes_.timed_row_counts() < 2 || context_lengths.empty()) return smallest_min_joint_probability;
  const int64_t sequences = std::ssize(context_lengths), attended_tokens = attended_by_roots(context_lengths);
  const double plain = passes_.expected_seconds(sequences, attended_tokens);
  double cheapest = 1;  // seconds that a node adds; begins above what any does
  for (int64_t nodes_per_sequence = 1; nodes_per_sequence <= 16; nodes_per_sequence *= 2) {
    const double seconds = passes_.expected_seconds(sequences * (1 + nodes_per_sequence),
                                                    attended_tokens * (1 + nodes_per_sequence));
    cheapest = std::min(cheapest, (seconds - plain) / static_cast<double>(sequences * nodes_per_sequence));
  }
  const double break_even = cheapest * static_cast<double>(sequences) / plain;
  return std::clamp(break_even / 2, smallest_min_joint_probability, largest_min_joint_probability);
}

std::vector<RankedNode> CostModel::ranked_nodes(const std::vector<CandidateTree>& trees,
                                                std::span<const int64_t> context_lengths) const {
  return rank_nodes(trees, row_costs(passes_, context_lengths), [this](float probability, Proposer proposer) {
    return calibrated_probability(probability, proposer);
  });
}

void CostModel::trim(std::vector<CandidateTree>& trees, std::span<const int64_t> context_lengths,
                     int64_t drafted_sequences) {
  if (trees.empty()) return;
  std::vector<RankedNode> nodes = ranked_nodes(trees, context_lengths);
  if (passes_.timed_row_counts() < 2) {
    std::vector<RankedNode> kept;
    std::vector<int64_t> taken(trees.size(), 0);
    for (const RankedNode& node : nodes)
      if (taken[node.tree]++ < nodes_without_costs) kept.push_back(node);
    return prune(trees, kept);
  }
  const int64_t sequences = std::ssize(trees);
  if (plain_step_is_due()) {
    steps_since_plain_ = 0;
    // The timing of this plain pass, of one row a sequence, is to count more than old ones.
    passes_.mark_stale(sequences);
    return prune(trees, {});
  }
  const NodeChoice best = best_choice(passes_, nodes, context_lengths,
                                      drafted_sequences > 0 ? draft_seconds(drafted_sequences) : 0);
  prune(trees, std::span(nodes).first(best.nodes));
  steps_since_plain_ = best.nodes > 0 ? steps_since_plain_ + 1 : 0;
  gain_ += (best.gain - gain_) / gain_memory;
  if (drafted_sequences == 0) return;
  record_yield(std::span(nodes).first(best.nodes), drafted_sequences);
  std::erase_if(nodes, [](const RankedNode& node) { return node.proposer == Proposer::heads; });
  const NodeChoice without_heads = best_choice(passes_, nodes, context_lengths, 0);
  // The ratio as if the best number of levels had been drafted: this draft may have been a trial of another
  // number (DraftCost::next_levels).
  record_advantage(sequences, best.rate() / without_heads.rate() *
                                  drafts_.best_over_last(step_of(context_lengths, drafted_sequences)));
  prediction_.sequences = sequences;
  prediction_.tokens = best.tokens;
  prediction_.seconds = best.seconds;
}

bool CostModel::pays(const std::vector<CandidateTree>& trees, std::span<const int64_t> context_lengths) {
  const std::vector<RankedNode> nodes = ranked_nodes(trees, context_lengths);
  const bool any_pays = passes_.timed_row_counts() < 2
                            ? !nodes.empty()
                            : best_choice(passes_, nodes, context_lengths, 0).nodes > 0;
  if (!any_pays) {
    steps_since_plain_ = 0;
    gain_ += (1 - gain_) / gain_memory;
  }
  return any_pays;
}

void CostModel::record_yield(std::span<const RankedNode> kept, int64_t drafted_sequences) {
  std::vector<DraftCost::Level> levels(levels_);
  for (const RankedNode& node : kept) {
    if (node.proposer != Proposer::heads || node.depth > levels_) continue;
    levels[node.depth - 1].tokens += node.expected;
    levels[node.depth - 1].rows += 1;
  }
  drafts_.observe_levels(drafted_sequences, levels);
}

DraftCost::Step CostModel::step_of(std::span<const int64_t> context_lengths,
                                   int64_t drafted_sequences) const {
  const std::vector<double> costs = row_costs(passes_, context_lengths);
  return {.sequences = std::ssize(context_lengths),
          .drafted = drafted_sequences,
          .plain_seconds =
              passes_.expected_seconds(std::ssize(context_lengths), attended_by_roots(context_lengths)),
          .seconds_per_row =
              std::accumulate(costs.begin(), costs.end(), 0.0) / static_cast<double>(costs.size())};
}

int64_t CostModel::draft_levels(std::span<const int64_t> context_lengths, int64_t drafted_sequences,
                                int64_t max_levels) {
  return levels_ = drafts_.next_levels(step_of(context_lengths, drafted_sequences), max_levels);
}

// While all steps have guesses, plain passes are not timed.  Timings of other row counts still rescale the
// whole cost curve, so one row count that was underestimated would make plain passes seem ever more
// expensive.
bool CostModel::plain_step_is_due() const {
  return steps_since_plain_ >=
         (gain_ >= clear_gain ? max_steps_without_plain_if_clear : max_steps_without_plain);
}

void CostModel::record_advantage(int64_t sequences, double ratio) {
  Advantage& advantage = advantages_[sequences];
  if (ratio >= min_advantage && advantage.predicted_ratio < min_advantage) {
    // Conditions may have changed, so earlier trims count less.
    advantage.trims = std::min(advantage.trims, max_trims_on_recovery);
    probe_interval_ = min_probe_interval;
  }
  advantage.trims = std::min(advantage.trims + 1, advantage_memory);
  advantage.predicted_ratio += (ratio - advantage.predicted_ratio) / advantage.trims;
}

double CostModel::Advantage::corrected_ratio() const {
  return predicted_ratio * (observed_over_predicted * sequence_steps + prediction_prior) /
         (sequence_steps + prediction_prior);
}

void CostModel::learn_from_prediction() {
  if (prediction_.sequences > 0 && prediction_.tokens_observed == 0)
    return;  // its trees have not been verified yet
  const Prediction prediction = std::exchange(prediction_, {});
  if (prediction.sequences == 0 || prediction.tokens_observed == 0 || !prediction.pass_timed ||
      prediction.seconds_observed <= 0)
    return;
  const double observed_over_predicted =
      prediction.tokens_observed / prediction.tokens * prediction.seconds / prediction.seconds_observed;
  const double steps = static_cast<double>(prediction.sequences);
  Advantage& advantage = advantages_[prediction.sequences];
  advantage.sequence_steps = std::min(advantage.sequence_steps + steps, std::max(prediction_memory, steps));
  advantage.observed_over_predicted +=
      (std::clamp(observed_over_predicted, 0.25, 4.0) - advantage.observed_over_predicted) * steps /
      advantage.sequence_steps;
}

// The corrected ratio for this number of sequences or, before enough trims, the mean for all numbers within a
// factor of 1.5; nullopt while those have too few trims too.
std::optional<double> CostModel::expected_advantage(int64_t sequences) const {
  const auto found = advantages_.find(sequences);
  if (found != advantages_.end() && enough_trims(found->second.predicted_ratio, found->second.trims))
    return found->second.corrected_ratio();
  double ratio = 0, trims = 0;
  for (const auto& [size, advantage] : advantages_) {
    if (2 * std::max(size, sequences) > 3 * std::min(size, sequences)) continue;
    trims += advantage.trims;
    if (trims == 0) continue;
    ratio += (advantage.corrected_ratio() - ratio) * advantage.trims / trims;
  }
  if (trims == 0 || !enough_trims(ratio, trims)) return std::nullopt;
  return ratio;
}

/// Whether trims of batches of this size predicted, on average, that drafting pays.
bool CostModel::predicted_to_pay(int64_t sequences) const {
  const auto found = advantages_.find(sequences);
  return found != advantages_.end() && found->second.predicted_ratio >= min_advantage;
}

double CostModel::optimistic_speedup(std::span<const int64_t> context_lengths) const {
  const int64_t sequences = std::ssize(context_lengths), attended_tokens = attended_by_roots(context_lengths);
  const double plain = passes_.expected_seconds(sequences, attended_tokens);
  const double timed_seconds =
      drafts_.has_timings(sequences, min_drafts) ? drafts_.expected_seconds(sequences, 1) : 0;
  const double drafting_seconds = std::max(optimistic_draft_cost * plain, timed_seconds);
  double best = 0;
  for (const int64_t nodes : {sequences / 2, sequences, 2 * sequences}) {
    const double tokens = static_cast<double>(sequences) + optimistic_acceptance * static_cast<double>(nodes);
    const double seconds =
        passes_.expected_seconds(sequences + nodes, attended_tokens + attended_tokens / sequences * nodes) +
        drafting_seconds;
    best = std::max(best, tokens / static_cast<double>(sequences) * plain / seconds);
  }
  return best;
}

bool CostModel::worth_drafting(std::span<const int64_t> context_lengths) {
  learn_from_prediction();
  const std::optional<double> advantage = expected_advantage(std::ssize(context_lengths));
  const bool pays = advantage && *advantage >= min_advantage;
  // Not even excellent heads would pay.
  const bool hopeless = !pays && !predicted_to_pay(std::ssize(context_lengths)) &&
                        passes_.timed_row_counts() >= 2 &&
                        optimistic_speedup(context_lengths) < min_optimistic_speedup;
  if (pays || (!advantage && !hopeless)) {
    steps_since_probe_ = 0;
    probe_interval_ = min_probe_interval;
    return true;
  }
  if (hopeless) probe_interval_ = std::max(probe_interval_, hopeless_probe_interval);
  const bool probes_now = ++steps_since_probe_ > probe_interval_ - probe_steps;
  if (steps_since_probe_ == probe_interval_) {
    steps_since_probe_ = 0;
    probe_interval_ = std::min(2 * probe_interval_, max_probe_interval);
  }
  return probes_now;
}

}  // namespace clover::infer
