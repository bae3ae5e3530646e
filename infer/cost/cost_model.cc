#include "infer/cost/cost_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace clover::infer {
namespace {

// A new bin starts with pseudo-observations: `expected` is this sum of proposed probabilities, and `hits` is
// this times the correction that is assumed for the bin.
constexpr double prior_expected = 2;
// A bin's sums are multiplied by this for each node, so that a node weighs half after 350 later ones.
constexpr double retention = 1 - 1.0 / 512;
// Corrections of proposed probabilities before anything was observed: those of heads are right, those of
// guesses from the text are twice too high.
constexpr double heads_assumed = 1.0, suffix_assumed = 0.5;

// Bounds of CostModel::min_joint_probability.
constexpr double smallest_min_joint_probability = 0.02, largest_min_joint_probability = 0.3;

// Tokens per second with guesses / without at which guesses pay.  Costs and acceptance are known to a few
// percent only, so a smaller predicted gain may be a loss.
constexpr double min_gain = 1.04;

constexpr int64_t nodes_without_costs = 4;  // nodes that stay in a tree while costs are unknown

constexpr double advantage_memory = 32;         // trims over which an advantage is averaged
constexpr double min_trims = 8;                 // trims before drafting may stop
constexpr double clearly_bad = 0.95;            // tokens per second with heads / without: surely a loss
constexpr double min_trims_if_clearly_bad = 3;  // trims before drafting may stop at such a ratio
constexpr double min_advantage = 1.02;  // tokens per second with heads / without at which drafting pays
// Predictions are corrected by what was observed, averaged over prediction_memory sequence-steps (steps times
// sequences).  The correction starts as if predictions had been right for prediction_prior of them.  It is
// needed because the best of many numbers of nodes is often the one whose cost was underestimated.
constexpr double prediction_prior = 64, prediction_memory = 1024;
// Excellent heads: every guess is accepted with probability optimistic_acceptance, and drafting takes at
// least optimistic_draft_cost times the seconds of a pass, and once min_drafts were timed at least what they
// took. Where even they gain less than the factor min_optimistic_speedup, other heads lose.
constexpr double optimistic_acceptance = 0.8, optimistic_draft_cost = 0.05, min_optimistic_speedup = 1.1;
constexpr double min_drafts = 2;
// When a trim first predicts that drafting pays again, earlier trims count as no more than this many.
constexpr double max_trims_on_recovery = 4;
// Steps between probes of whether drafting pays again; doubled while it does not.  Probes are rarer where not
// even excellent heads would pay, because in a probe the drafter also reads all rows that it has skipped.
constexpr int64_t min_probe_interval = 64, hopeless_probe_interval = 512, max_probe_interval = 1024;
// Steps with guesses before a step without guesses times plain decoding again.
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

// The root and the nodes of `tree` that `keep` [N] marks, in their order.
CandidateTree pruned_tree(const CandidateTree& tree, const std::vector<char>& keep) {
  CandidateTree kept = CandidateTree::of_root(tree.ids[0]);
  std::vector<int32_t> new_index(tree.size(), 0);
  for (int32_t i = 1; i < tree.size(); ++i)
    if (keep[i])
      new_index[i] =
          kept.add(tree.ids[i], new_index[tree.parent[i]], tree.proposed_probability[i], tree.proposer[i]);
  return kept;
}

struct RankedNode {
  double expected;  // probability that it is accepted
  int32_t tree, node;
  Proposer proposer;
};

// Cuts every tree to its root and the `kept` nodes.
void prune(std::vector<CandidateTree>& trees, std::span<const RankedNode> kept) {
  std::vector<std::vector<char>> keep;
  for (const CandidateTree& tree : trees) keep.emplace_back(tree.size(), 0);
  for (const RankedNode& node : kept) keep[node.tree][node.node] = 1;
  for (size_t t = 0; t < trees.size(); ++t) trees[t] = pruned_tree(trees[t], keep[t]);
}

int64_t sum(std::span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// For each sequence the seconds that one more row in its tree adds to a pass: a pass of one row a sequence is
// compared with one of twice the rows, where all added rows attend to that sequence's context; the difference
// is divided by the added rows.
std::vector<double> row_costs(const PassCost& passes, std::span<const int64_t> context_lengths) {
  const int64_t sequences = std::ssize(context_lengths), attended_tokens = sum(context_lengths);
  const double plain = passes.at(sequences, attended_tokens);
  std::vector<double> costs;
  for (const int64_t context_length : context_lengths) {
    const double added = passes.at(2 * sequences, attended_tokens + sequences * context_length) - plain;
    costs.push_back(std::max(added / static_cast<double>(sequences), 1e-9 * plain + 1e-12));  // above 0
  }
  return costs;
}

// [N] probability that each node of the tree is accepted: 1 for the root, for a child at most its parent's.
std::vector<double> expected_acceptance(const CostModel& model, const CandidateTree& tree) {
  std::vector<double> expected(tree.size(), 1.0);
  for (int32_t i = 1; i < tree.size(); ++i) {
    const double calibrated = model.calibrated_probability(tree.proposed_probability[i], tree.proposer[i]);
    expected[i] = std::min(calibrated, expected[tree.parent[i]]);
  }
  return expected;
}

// All nodes except roots, ranked by expected acceptance per second that their row adds to the pass, a parent
// before its children.
std::vector<RankedNode> ranked_nodes(const CostModel& model, const std::vector<CandidateTree>& trees,
                                     std::span<const int64_t> context_lengths) {
  std::vector<RankedNode> nodes;
  for (int32_t t = 0; t < std::ssize(trees); ++t) {
    const CandidateTree& tree = trees[t];
    const std::vector<double> expected = expected_acceptance(model, tree);
    for (int32_t i = 1; i < tree.size(); ++i) nodes.push_back({expected[i], t, i, tree.proposer[i]});
  }
  const std::vector<double> costs = row_costs(model.passes(), context_lengths);
  // A child expects no more than its parent and the sort is stable, so parents come first.
  std::stable_sort(nodes.begin(), nodes.end(), [&costs](const RankedNode& a, const RankedNode& b) {
    return a.expected * costs[b.tree] > b.expected * costs[a.tree];
  });
  return nodes;
}

/// The choice of the first `nodes` ranked nodes.
struct Choice {
  size_t nodes = 0;
  double tokens = 0, seconds = 1;  // expected of the step
  double gain = 1;                 // tokens per second with the nodes / without
  double rate() const { return tokens / seconds; }
};

// How many of the ranked nodes, from the first, give the most expected tokens per second; 0 where that gains
// less than min_gain.  `drafting_seconds` are spent in any case.
Choice best_choice(const PassCost& passes, std::span<const RankedNode> nodes,
                   std::span<const int64_t> context_lengths, double drafting_seconds) {
  int64_t rows = std::ssize(context_lengths), attended_tokens = sum(context_lengths);
  double tokens = static_cast<double>(rows);
  const Choice none{0, tokens, passes.at(rows, attended_tokens) + drafting_seconds};
  Choice best = none;
  for (size_t n = 0; n < nodes.size(); ++n) {
    tokens += nodes[n].expected;
    attended_tokens += context_lengths[nodes[n].tree];
    const Choice choice{n + 1, tokens, passes.at(++rows, attended_tokens) + drafting_seconds};
    if (choice.rate() > best.rate()) best = choice;
  }
  best.gain = best.rate() / none.rate();
  return best.gain > min_gain ? best : none;
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

// A node pays where its acceptance exceeds the seconds of its row times the tokens per second without it,
// which are at least those of plain decoding.  Rows may be cheap only in large numbers, so the cheapest of
// several numbers counts.  The bound is half of that, because calibrated_probability may exceed the proposed
// one.
double CostModel::min_joint_probability(std::span<const int64_t> context_lengths) const {
  if (passes_.points() < 2 || context_lengths.empty()) return smallest_min_joint_probability;
  const int64_t sequences = std::ssize(context_lengths), attended_tokens = sum(context_lengths);
  const double plain = passes_.at(sequences, attended_tokens);
  double cheapest = 1;  // seconds that a node adds; at first more than any node that pays
  for (int64_t nodes_per_sequence = 1; nodes_per_sequence <= 16; nodes_per_sequence *= 2) {
    const double seconds =
        passes_.at(sequences * (1 + nodes_per_sequence), attended_tokens * (1 + nodes_per_sequence));
    cheapest = std::min(cheapest, (seconds - plain) / static_cast<double>(sequences * nodes_per_sequence));
  }
  const double break_even = cheapest * static_cast<double>(sequences) / plain;
  return std::clamp(break_even / 2, smallest_min_joint_probability, largest_min_joint_probability);
}

void CostModel::trim(std::vector<CandidateTree>& trees, std::span<const int64_t> context_lengths,
                     int64_t drafted) {
  if (trees.empty()) return;
  std::vector<RankedNode> nodes = ranked_nodes(*this, trees, context_lengths);
  if (passes_.points() < 2) {
    std::vector<RankedNode> kept;
    std::vector<int64_t> taken(trees.size(), 0);
    for (const RankedNode& node : nodes)
      if (taken[node.tree]++ < nodes_without_costs) kept.push_back(node);
    return prune(trees, kept);
  }
  const int64_t sequences = std::ssize(trees);
  if (plain_step_is_due()) {
    steps_since_plain_ = 0;
    passes_.lower_weight(sequences);  // of plain passes, which have one row a sequence
    return prune(trees, {});
  }
  const Choice best = best_choice(passes_, nodes, context_lengths, drafted > 0 ? draft_seconds(drafted) : 0);
  prune(trees, std::span(nodes).first(best.nodes));
  steps_since_plain_ = best.nodes > 0 ? steps_since_plain_ + 1 : 0;
  gain_ += (best.gain - gain_) / gain_memory;
  if (drafted == 0) return;
  record_yield(trees, drafted);
  std::erase_if(nodes, [](const RankedNode& node) { return node.proposer == Proposer::heads; });
  const Choice without_heads = best_choice(passes_, nodes, context_lengths, 0);
  // The ratio as if the best number of levels had been drafted: this draft may have been a trial of another
  // one.
  record_advantage(sequences, best.rate() / without_heads.rate() *
                                  drafts_.best_over_last(step_of(context_lengths, drafted)));
  prediction_.sequences = sequences;
  prediction_.tokens = best.tokens;
  prediction_.seconds = best.seconds;
}

bool CostModel::pays(const std::vector<CandidateTree>& trees, std::span<const int64_t> context_lengths) {
  const std::vector<RankedNode> nodes = ranked_nodes(*this, trees, context_lengths);
  const bool any_pays =
      passes_.points() < 2 ? !nodes.empty() : best_choice(passes_, nodes, context_lengths, 0).nodes > 0;
  if (!any_pays) {
    steps_since_plain_ = 0;
    gain_ += (1 - gain_) / gain_memory;
  }
  return any_pays;
}

void CostModel::record_yield(const std::vector<CandidateTree>& kept, int64_t drafted) {
  std::vector<DraftCost::Level> levels(levels_);
  for (const CandidateTree& tree : kept) {
    const std::vector<double> expected = expected_acceptance(*this, tree);
    for (int64_t i = 1; i < tree.size(); ++i) {
      if (tree.proposer[i] != Proposer::heads || tree.depth[i] > levels_) continue;
      levels[tree.depth[i] - 1].tokens += expected[i];
      levels[tree.depth[i] - 1].rows += 1;
    }
  }
  drafts_.observe_levels(drafted, levels);
}

DraftCost::Step CostModel::step_of(std::span<const int64_t> context_lengths, int64_t drafted) const {
  const std::vector<double> costs = row_costs(passes_, context_lengths);
  return {.sequences = std::ssize(context_lengths),
          .drafted = drafted,
          .plain_seconds = passes_.at(std::ssize(context_lengths), sum(context_lengths)),
          .seconds_per_row =
              std::accumulate(costs.begin(), costs.end(), 0.0) / static_cast<double>(costs.size())};
}

int64_t CostModel::draft_levels(std::span<const int64_t> context_lengths, int64_t drafted,
                                int64_t max_levels) {
  return levels_ = drafts_.next_levels(step_of(context_lengths, drafted), max_levels);
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
  const int64_t sequences = std::ssize(context_lengths), attended_tokens = sum(context_lengths);
  const double plain = passes_.at(sequences, attended_tokens);
  const double timed_seconds = drafts_.has_timings(sequences, min_drafts) ? drafts_.at(sequences, 1) : 0;
  const double drafting_seconds = std::max(optimistic_draft_cost * plain, timed_seconds);
  double best = 0;
  for (const int64_t nodes : {sequences / 2, sequences, 2 * sequences}) {
    const double tokens = static_cast<double>(sequences) + optimistic_acceptance * static_cast<double>(nodes);
    const double seconds =
        passes_.at(sequences + nodes, attended_tokens + attended_tokens / sequences * nodes) +
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
  const bool hopeless = !pays && !predicted_to_pay(std::ssize(context_lengths)) && passes_.points() >= 2 &&
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
