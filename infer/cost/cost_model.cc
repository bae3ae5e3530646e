#include "infer/cost/cost_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace clover::infer {
namespace {

// Calibration: a bin starts as if it had seen this much probability confirmed, and halves what it knows every
// few hundred nodes.
constexpr double prior = 2;
// Before anything was seen: heads mean what they say, a match of a few tokens often goes on otherwise.
constexpr double heads_assumed = 1.0, suffix_assumed = 0.5;
constexpr double forgetting = 1 - 1.0 / 512;

// What grow may be asked to leave out: never the likely, always what is hopeless.
constexpr double least_joint_ever = 0.02, most_joint_asked = 0.3;

// Costs and acceptance are known to a few percent; a smaller promise is as likely to be a loss.
constexpr double gain_needed = 1.04;

constexpr int64_t blind_nodes = 4;  // nodes a tree while costs are unknown

constexpr double advantage_memory = 32;  // trims remembered
constexpr double advantage_least = 8;    // trims before drafting may be given up
constexpr double hopeless = 0.95;        // what is seen to be this bad ..
constexpr double hopeless_least = 3;     // .. takes fewer
constexpr double advantage_needed = 1.02;
// A promise is believed as if it had come true for so many tokens; so many are remembered.  The best of many
// numbers of nodes is also the one whose cost was taken for too little.
constexpr double promise_prior = 64, promise_memory = 1024;
// Heads whose every guess is accepted so often, for a drafting cost of so much of a pass or what it is known
// to be from so many drafts, are as good as can be hoped for.  Where even they gain so little, others lose.
constexpr double hoped_acceptance = 0.8, hoped_drafting = 0.05, hope_needed = 1.1;
constexpr double drafts_needed = 2;
constexpr double surprise_memory = 4;  // trims remembered when one says that drafting pays by now
// Steps between looks at whether drafting pays by now, doubled while it does not.  Where not even excellent
// heads would, a look takes what many steps could lose: it has the answers so far read by them.
constexpr int64_t shortest_period = 64, hopeless_period = 512, longest_period = 1024;
// Steps with guesses before one without shows again what those are compared with.
constexpr int64_t longest_unseen = 32, longest_unseen_where_clear = 256;
constexpr double clear_gain = 1.25, gain_memory = 8;
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

// All nodes but roots, those first that promise most for the seconds of their row; a parent stands before its
// children.
std::vector<Worth> ranked(const CostModel& model, const std::vector<CandidateTree>& trees,
                          std::span<const int64_t> contexts) {
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
  const std::vector<double> costs = row_costs(model.passes(), contexts);
  std::stable_sort(nodes.begin(), nodes.end(), [&costs](const Worth& a, const Worth& b) {
    return a.expected * costs[b.tree] > b.expected * costs[a.tree];
  });
  return nodes;
}

struct Choice {
  size_t nodes = 0;
  double tokens = 0, seconds = 1;  // expected
  double gain = 1;                 // of tokens a second over no nodes
  double rate() const { return tokens / seconds; }
};

// The number of nodes, from the worthiest, that makes expected tokens a second largest; none where that is
// hardly more than without.
Choice best_of(const PassCost& passes, std::span<const Worth> nodes, std::span<const int64_t> contexts,
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
  promise_.seconds_seen += seconds;
  promise_.pass_seen = true;
}

void CostModel::observe_draft(int64_t sequences, double seconds, bool typical) {
  promise_.seconds_seen += typical ? seconds : draft_seconds(sequences);
  if (typical) drafts_.observe(sequences, seconds);
}

void CostModel::Bin::add(bool hit, double probability) {
  hits = hits * forgetting + hit;
  expected = expected * forgetting + probability;
}

double CostModel::Bin::correction(double assumed) const {
  return (hits + prior * assumed) / (expected + prior);
}

void CostModel::observe_tree(const CandidateTree& tree, std::span<const int32_t> accepted_nodes) {
  promise_.tokens_seen += static_cast<double>(accepted_nodes.size());
  std::vector<char> accepted(tree.size(), 0);
  for (const int32_t node : accepted_nodes) accepted.at(node) = 1;
  for (int64_t i = 1; i < tree.size(); ++i) {
    const float probability = tree.probability_by_drafter[i];
    Calibration& of_proposer = calibration_[static_cast<int>(tree.proposer[i])];
    of_proposer.all.add(accepted[i], probability);
    of_proposer.by_probability[bin_of(probability, bins)].add(accepted[i], probability);
  }
}

// What is not known of a probability yet is taken from all of them: who exaggerates does so everywhere.
double CostModel::calibrated(float probability_by_drafter, Proposer proposer) const {
  const Calibration& known = calibration_[static_cast<int>(proposer)];
  const double assumed = proposer == Proposer::heads ? heads_assumed : suffix_assumed;
  const Bin& bin = known.by_probability[bin_of(probability_by_drafter, bins)];
  return std::clamp(probability_by_drafter * bin.correction(known.all.correction(assumed)), 0.0, 1.0);
}

// A node pays when it raises tokens a second: acceptance above the seconds of its row times the rate without
// it, which is at least that of plain decoding.  Rows may be cheap only in numbers, so the best of several is
// asked; half of it, because calibration may find the drafter too modest.
double CostModel::least_worth(std::span<const int64_t> contexts) const {
  if (passes_.points() < 2 || contexts.empty()) return least_joint_ever;
  const int64_t sequences = std::ssize(contexts), positions = sum(contexts);
  const double plain = passes_.at(sequences, positions);
  double cheapest = 1;
  for (int64_t each = 1; each <= 16; each *= 2) {  // nodes a sequence
    const double seconds = passes_.at(sequences * (1 + each), positions * (1 + each));
    cheapest = std::min(cheapest, (seconds - plain) / static_cast<double>(sequences * each));
  }
  const double worth = cheapest * static_cast<double>(sequences) / plain;
  return std::clamp(worth / 2, least_joint_ever, most_joint_asked);
}

void CostModel::trim(std::vector<CandidateTree>& trees, std::span<const int64_t> contexts, int64_t drafted) {
  if (trees.empty()) return;
  std::vector<Worth> nodes = ranked(*this, trees, contexts);
  if (passes_.points() < 2) {
    std::vector<Worth> kept;
    std::vector<int64_t> taken(trees.size(), 0);
    for (const Worth& node : nodes)
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
  std::erase_if(nodes, [](const Worth& node) { return node.proposer == Proposer::heads; });
  const Choice without_heads = best_of(passes_, nodes, contexts, 0);
  note_advantage(sequences, best.rate() / without_heads.rate());
  promise_.sequences = sequences;
  promise_.tokens = best.tokens;
  promise_.seconds = best.seconds;
}

// What a pass without guesses costs is known from before, and what passes with guesses have in common to be
// slower than expected is believed of it, too: a number of rows that was taken for cheaper than it is would
// make all others seem dear.
bool CostModel::plain_is_due() const {
  return guessing_ >= (gain_ >= clear_gain ? longest_unseen_where_clear : longest_unseen);
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

double CostModel::Advantage::ratio_kept() const {
  return ratio * (kept * kept_weight + promise_prior) / (kept_weight + promise_prior);
}

void CostModel::settle_promise() {
  if (promise_.sequences > 0 && promise_.tokens_seen == 0) return;  // its pass is yet to come
  const Promise made = std::exchange(promise_, {});
  if (made.sequences == 0 || made.tokens_seen == 0 || !made.pass_seen || made.seconds_seen <= 0) return;
  const double kept = made.tokens_seen / made.tokens * made.seconds / made.seconds_seen;
  const double weight = static_cast<double>(made.sequences);
  Advantage& advantage = advantages_[made.sequences];
  advantage.kept_weight = std::min(advantage.kept_weight + weight, std::max(promise_memory, weight));
  advantage.kept += (std::clamp(kept, 0.25, 4.0) - advantage.kept) * weight / advantage.kept_weight;
}

// Of this batch size, else of all within a factor of 1.5; nothing before enough trims were seen.
std::optional<double> CostModel::known_advantage(int64_t sequences) const {
  const auto own = advantages_.find(sequences);
  if (own != advantages_.end() && enough(own->second.ratio, own->second.weight))
    return own->second.ratio_kept();
  Advantage near;
  for (const auto& [size, advantage] : advantages_) {
    if (2 * std::max(size, sequences) > 3 * std::min(size, sequences)) continue;
    near.weight += advantage.weight;
    if (near.weight == 0) continue;
    near.ratio += (advantage.ratio_kept() - near.ratio) * advantage.weight / near.weight;
  }
  if (near.weight == 0 || !enough(near.ratio, near.weight)) return std::nullopt;
  return near.ratio;
}

/// Whether the last look at a batch of that size promised a gain.
bool CostModel::promising(int64_t sequences) const {
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
  settle_promise();
  const std::optional<double> advantage = known_advantage(std::ssize(contexts));
  const bool pays = advantage && *advantage >= advantage_needed;
  const bool in_vain =
      !pays && !promising(std::ssize(contexts)) && passes_.points() >= 2 && best_hope(contexts) < hope_needed;
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
