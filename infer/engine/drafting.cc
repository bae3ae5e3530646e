#include "infer/engine/drafting.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "infer/engine/feature_ranges.h"
#include "model/graphs/timer.h"

namespace clover::infer {
namespace {

// Guesses copied from the text: under `auto`, which trims them, and under other policies.
constexpr int64_t max_suffix_guesses_auto = 16, max_suffix_guesses_fixed = 8;

}  // namespace

Drafting::Drafting(const model::Target& target, model::Drafter* drafter, model::KvCache& cache,
                   model::PassGraphs& passes, model::GraphRunner& graph_runner, const EngineOptions& options,
                   EngineStats& stats)
    : target_(target),
      drafter_(drafter),
      cache_(cache),
      graph_runner_(graph_runner),
      options_(options),
      stats_(stats),
      uses_heads_(drafter != nullptr && growth_policy(options.growth.policy).drafts),
      calibration_(target, cache, passes, taps(), options.max_batch, options.typical) {
  if (uses_heads_) runner_.emplace(*drafter, cache, target.config().layers, graph_runner);
  if (automatic()) costs_.passes() = options.costs.read();
}

std::vector<int64_t> Drafting::context_lengths(Sequences sequences) const {
  std::vector<int64_t> tokens;
  for (LiveSequence* live : sequences) tokens.push_back(cache_.length(live->sequence()));
  return tokens;
}

void Drafting::calibrate(Sequences sequences) {
  model::Timer timer(stats_.calibration_seconds);
  const double capture_seconds_before = graph_runner_.seconds();
  std::vector<int32_t> numbers;
  for (LiveSequence* live : sequences) numbers.push_back(live->sequence());
  calibration_.run(numbers, costs_.passes());
  stats_.calibration_seconds -= graph_runner_.seconds() - capture_seconds_before;
}

void Drafting::propose(Sequences sequences, const DraftChoice& choice, std::vector<CandidateTree>& trees) {
  const std::vector<int64_t> lengths = context_lengths(sequences);
  if (uses_heads_ && automatic()) calibrate(sequences);
  std::vector<size_t> drafted = choice.grown;
  if (drafted.empty()) {
    drafted = choice.made_by_last_step ? choice.to_draft : choose(sequences, lengths, 0);
    if (!drafted.empty()) draft(sequences, drafted, lengths, trees);
  }
  const bool grafted = options_.suffix && graft_suffixes(sequences, trees);
  if (!automatic()) return;
  if (grafted) calibrate(sequences);
  costs_.trim(trees, lengths, std::ssize(drafted));
  note_backoff(sequences, drafted, trees);
}

std::vector<size_t> Drafting::choose(Sequences sequences, std::span<const int64_t> context_lengths,
                                     int64_t certain_tokens) {
  std::vector<size_t> chosen;
  if (!uses_heads_ || (automatic() && !costs_.worth_drafting(context_lengths))) return chosen;
  int64_t free = cache_.free_pages();
  const int64_t guess_rows = drafter_->writes_guesses()
                                 ? max_guesses_written(options_.growth, *drafter_, budget_a_tree(sequences))
                                 : 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    // Without room the answer ends before a guess.
    const bool has_room = max_guess_tokens(*sequences[i], certain_tokens) > 0;
    if (!has_room || (automatic() && !sequences[i]->backoff().tick_and_may_draft())) continue;
    if (drafter_->writes_guesses()) {  // which needs pages
      free -= cache_.missing_pages(sequences[i]->sequence(), guess_rows);
      if (free < 0) break;
    }
    chosen.push_back(i);
  }
  return chosen;
}

void Drafting::note_backoff(Sequences sequences, std::span<const size_t> drafted,
                            std::span<const CandidateTree> trees) {
  for (const size_t i : drafted) {
    const auto& proposers = trees[i].proposer;
    sequences[i]->backoff().note(std::find(proposers.begin() + 1, proposers.end(), Proposer::heads) !=
                                 proposers.end());
  }
}

GrowthRule Drafting::rule_for(std::span<const int64_t> context_lengths, std::span<const GrowthLimit> limits) {
  GrowthRule rule = options_.growth;
  if (!automatic()) return rule;
  // Leaves out only nodes that cannot pay for their row; CostModel::trim chooses among the others.
  rule.least_joint = costs_.least_joint(context_lengths);
  int64_t levels = 1;  // that some tree can have
  for (const GrowthLimit& limit : limits) levels = std::max(levels, limit.max_depth);
  rule.depth = costs_.draft_levels(context_lengths, std::ssize(limits), levels);
  return rule;
}

/// Grows the trees of the chosen sequences.
void Drafting::draft(Sequences sequences, std::span<const size_t> chosen,
                     std::span<const int64_t> context_lengths, std::vector<CandidateTree>& trees) {
  const bool had_backlog =
      std::ranges::any_of(chosen, [&sequences](size_t i) { return sequences[i]->pending_passes() > 1; });
  double drafting_seconds = 0;
  const double head_seconds_before = runner_->seconds();
  {
    model::Timer timer(drafting_seconds);
    const std::vector<GrowthLimit> own_limits = limits(sequences, chosen);
    std::vector<CandidateTree> grown =
        grow(*runner_, take_input(sequences, chosen), rule_for(context_lengths, own_limits), own_limits);
    for (size_t i = 0; i < chosen.size(); ++i) trees[chosen[i]] = std::move(grown[i]);
    if (drafter_->writes_guesses()) free_guesses(sequences, chosen);
  }
  stats_.drafter_seconds += runner_->seconds() - head_seconds_before;
  stats_.grow_seconds += drafting_seconds - (runner_->seconds() - head_seconds_before);
  observe_draft(std::ssize(chosen), drafting_seconds, runner_->warm() && !had_backlog);
}

// Committing no rows frees the pages behind the committed ones: nobody reads the drafter's guesses once the
// trees are here, and the pass needs the pages.
void Drafting::free_guesses(Sequences sequences, std::span<const size_t> chosen) {
  std::vector<model::KvCache::Kept> no_rows;
  for (const size_t i : chosen) no_rows.push_back({sequences[i]->sequence(), {}});
  cache_.commit(no_rows);
}

model::DraftInput Drafting::take_input(Sequences sequences, std::span<const size_t> chosen) {
  model::DraftInput input;
  FeatureRanges ranges;
  for (const size_t i : chosen) {
    PendingRows pending = sequences[i]->take_pending();
    input.segments.push_back(
        {sequences[i]->sequence(), pending.begin, static_cast<int32_t>(pending.next_ids.size())});
    ranges.add(std::move(pending.parts));
    input.next_ids.insert(input.next_ids.end(), pending.next_ids.begin(), pending.next_ids.end());
  }
  input.parts = ranges.parts();
  return input;
}

bool Drafting::text_guesses_pay(Sequences sequences) {
  if (!options_.suffix) return false;
  std::vector<CandidateTree> trees;
  for (const LiveSequence* live : sequences) trees.push_back(CandidateTree::of_root(live->root()));
  if (!graft_suffixes(sequences, trees)) return false;
  return !automatic() || costs_.pays(trees, context_lengths(sequences));
}

bool Drafting::graft_suffixes(Sequences sequences, std::vector<CandidateTree>& trees) {
  model::Timer growing(stats_.grow_seconds);
  bool any = false;
  for (size_t i = 0; i < trees.size(); ++i) {
    const LiveSequence& live = *sequences[i];
    const int64_t longest = std::min(max_suffix_guesses(), max_guess_tokens(live));
    SuffixMatcher::Guess guess = live.suffix().guess(longest);
    if (options_.suffix_answers) {
      SuffixMatcher::Guess other = answers_.after(live.suffix().ids(), longest);
      if (other.match > guess.match) guess = std::move(other);
    }
    any |= !guess.ids.empty();
    graft(trees[i], guess);
  }
  return any;
}

// The target never reads an answer's last token, so no guess can follow it.
int64_t Drafting::max_guess_tokens(const LiveSequence& live, int64_t certain_tokens) const {
  const int64_t room = target_.config().context - 1 - cache_.length(live.sequence());
  return std::max<int64_t>(0, std::min(live.tokens_left() - 1, room) - certain_tokens);
}

int64_t Drafting::max_depth(const LiveSequence& live, int64_t certain_tokens) const {
  return std::min(depth_of(options_.growth, *drafter_), max_guess_tokens(live, certain_tokens));
}

int64_t Drafting::max_suffix_guesses() const {
  return automatic() ? max_suffix_guesses_auto : max_suffix_guesses_fixed;
}

int64_t Drafting::budget_a_tree(Sequences sequences) const {
  const GrowthPolicy& policy = growth_policy(options_.growth.policy);
  const int64_t rows = std::clamp(most_batch_rows / std::max<int64_t>(1, std::ssize(sequences)),
                                  least_tree_rows, most_tree_rows);
  const int64_t budget =
      std::min(rows - 1, policy.most_budget) - (options_.suffix ? max_suffix_guesses() : 0);
  const int64_t asked = options_.budget > 0 ? options_.budget : policy.default_budget;
  return asked > 0 ? std::min(budget, asked) : budget;
}

std::vector<GrowthLimit> Drafting::limits(Sequences sequences, std::span<const size_t> chosen,
                                          int64_t certain_tokens) const {
  const int64_t budget = budget_a_tree(sequences);
  std::vector<GrowthLimit> limits;
  for (const size_t i : chosen) {
    const int64_t depth = max_depth(*sequences[i], certain_tokens);
    limits.push_back({depth > 0 ? budget : 0, depth});
  }
  return limits;
}

// A drafter reads a row together with the token after it, which the last prefill token does not have yet:
// Engine::finish_prefills hands that row over by keep_accepted.
void Drafting::prefill(std::span<const PrefillChunk> chunks, const model::Features& features, int64_t first) {
  if (!uses_heads_) return;
  model::DraftInput input;
  FeatureRanges ranges;
  for (const PrefillChunk& chunk : chunks) {
    const int64_t begin = std::exchange(first, first + chunk.rows), rows = chunk.rows - (chunk.last ? 1 : 0);
    chunk.live->advance_drafter(rows);
    if (rows == 0) continue;
    const std::span<const int64_t> next = chunk.live->prefill_tokens().subspan(chunk.begin + 1, rows);
    input.next_ids.insert(input.next_ids.end(), next.begin(), next.end());
    input.segments.push_back(
        {chunk.live->sequence(), static_cast<int32_t>(chunk.begin), static_cast<int32_t>(rows)});
    ranges.add({{features, begin, begin + rows}});
  }
  if (reads_last_row_only() || input.segments.empty()) return;
  input.parts = ranges.parts();
  runner_->read(input);
}

void Drafting::keep_accepted(const model::Features& features, std::span<AcceptedRows> accepted,
                             Sequences drafted) {
  if (!uses_heads_) return;
  std::vector<AcceptedRows*> kept;
  std::vector<int64_t> rows;
  for (AcceptedRows& one : accepted) {
    if (!drafted.empty() && drafted.front() == one.live) {
      drafted = drafted.subspan(1);
      one.live->advance_drafter(std::ssize(one.rows));
      continue;
    }
    if (one.live->finished()) continue;
    if (reads_last_row_only()) {
      one.live->advance_drafter(std::ssize(one.rows) - 1);
      one.rows.erase(one.rows.begin(), one.rows.end() - 1);
      one.next_ids.erase(one.next_ids.begin(), one.next_ids.end() - 1);
    }
    kept.push_back(&one);
    rows.insert(rows.end(), one.rows.begin(), one.rows.end());
  }
  if (rows.empty()) return;
  const model::Features picked = features.rows(at::from_blob(rows.data(), {std::ssize(rows)}, at::kLong));
  int64_t begin = 0;
  for (AcceptedRows* one : kept) {
    const int64_t end = begin + std::ssize(one->rows);
    one->live->add_pending({picked, begin, end}, std::move(one->next_ids), reads_last_row_only());
    begin = end;
  }
}

void Drafting::note_finished(const LiveSequence& live) {
  if (options_.suffix && options_.suffix_answers)
    answers_.append(live.suffix().ids().subspan(live.request().prompt.size()));
}

void Drafting::observe_pass(std::span<const CandidateTree> trees, std::span<const int64_t> context_lengths,
                            double seconds) {
  if (!automatic()) return;
  int64_t rows = 0, attended_tokens = 0;
  for (size_t i = 0; i < trees.size(); ++i) {
    rows += trees[i].size();
    attended_tokens += trees[i].size() * context_lengths[i];
  }
  costs_.observe_pass(rows, attended_tokens, seconds);
}

void Drafting::observe_tree(const CandidateTree& tree, std::span<const int32_t> accepted) {
  if (automatic()) costs_.observe_tree(tree, accepted);
}

void Drafting::observe_draft(int64_t sequences, double seconds, bool representative) {
  if (representative) {
    ++stats_.drafts;
    stats_.draft_seconds += seconds;
  }
  if (automatic()) costs_.observe_draft(sequences, seconds, representative);
}

void Drafting::learn_from_prediction() {
  if (automatic()) costs_.learn_from_prediction();
}

void Drafting::keep_costs() const {
  if (automatic() && (uses_heads_ || options_.suffix)) options_.costs.write(costs_.passes());
}

}  // namespace clover::infer
