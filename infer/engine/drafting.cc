#include "infer/engine/drafting.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "infer/engine/feature_ranges.h"
#include "model/graphs/timer.h"

namespace clover::infer {
namespace {

// Max guesses per tree copied from the text: under `auto`, which trims them, and under other policies.
constexpr int64_t max_suffix_guesses_auto = 16, max_suffix_guesses_other = 8;

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
  if (uses_heads_) draft_runner_.emplace(*drafter, cache, target.config().layers, graph_runner);
  if (uses_cost_model()) cost_model_.passes() = options.costs.read();
}

std::vector<int64_t> Drafting::context_lengths(Sequences sequences) const {
  std::vector<int64_t> lengths;
  for (LiveSequence* live : sequences) lengths.push_back(cache_.length(live->seq_id()));
  return lengths;
}

void Drafting::calibrate(Sequences sequences) {
  model::Timer timer(stats_.calibration_seconds);
  const double capture_seconds_before = graph_runner_.seconds();
  std::vector<int32_t> sequence_numbers;
  for (LiveSequence* live : sequences) sequence_numbers.push_back(live->seq_id());
  calibration_.run(sequence_numbers, cost_model_.passes());
  stats_.calibration_seconds -= graph_runner_.seconds() - capture_seconds_before;
}

void Drafting::propose(Sequences sequences, const DraftChoice& choice, std::vector<CandidateTree>& trees) {
  const std::vector<int64_t> lengths = context_lengths(sequences);
  if (uses_heads_ && uses_cost_model()) calibrate(sequences);
  std::vector<size_t> drafted = choice.already_drafted;
  if (drafted.empty()) {
    drafted = choice.made_by_last_step ? choice.to_draft : choose_sequences(sequences, lengths, 0);
    if (!drafted.empty()) draft(sequences, drafted, lengths, trees);
  }
  const bool added = options_.suffix && add_text_guesses(sequences, trees);
  if (!uses_cost_model()) return;
  if (added) calibrate(sequences);
  cost_model_.trim(trees, lengths, std::ssize(drafted));
  update_backoff(sequences, drafted, trees);
}

std::vector<size_t> Drafting::choose_sequences(Sequences sequences, std::span<const int64_t> context_lengths,
                                               int64_t certain_tokens) {
  std::vector<size_t> chosen;
  if (!uses_heads_ || (uses_cost_model() && !cost_model_.worth_drafting(context_lengths))) return chosen;
  int64_t free_pages = cache_.free_pages();
  const int64_t guess_rows = drafter_->writes_guesses()
                                 ? max_guesses_written(options_.growth, *drafter_, budget_per_tree(sequences))
                                 : 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    // Without room the answer ends before the first guess.
    const bool has_room = max_guess_tokens(*sequences[i], certain_tokens) > 0;
    if (!has_room || (uses_cost_model() && !sequences[i]->backoff().tick_and_may_draft())) continue;
    if (drafter_->writes_guesses()) {
      free_pages -= cache_.missing_pages(sequences[i]->seq_id(), guess_rows);
      if (free_pages < 0) break;
    }
    chosen.push_back(i);
  }
  return chosen;
}

// A draft was useful for a sequence if a node that the heads guessed is still in its tree.
void Drafting::update_backoff(Sequences sequences, std::span<const size_t> drafted,
                              std::span<const CandidateTree> trees) {
  for (const size_t i : drafted) {
    const auto& proposers = trees[i].proposer;
    sequences[i]->backoff().record(std::find(proposers.begin() + 1, proposers.end(), Proposer::heads) !=
                                   proposers.end());
  }
}

GrowthRule Drafting::growth_rule_for(std::span<const int64_t> context_lengths,
                                     std::span<const GrowthLimit> limits) {
  GrowthRule rule = options_.growth;
  if (!uses_cost_model()) return rule;
  // Growth leaves out only nodes that cannot pay for their row; CostModel::trim chooses among the others.
  rule.min_joint_probability = cost_model_.min_joint_probability(context_lengths);
  int64_t levels = 1;  // max over the trees
  for (const GrowthLimit& limit : limits) levels = std::max(levels, limit.max_depth);
  rule.depth = cost_model_.draft_levels(context_lengths, std::ssize(limits), levels);
  return rule;
}

/// Grows the trees of the chosen sequences, and writes them to trees[chosen[..]].
void Drafting::draft(Sequences sequences, std::span<const size_t> chosen,
                     std::span<const int64_t> context_lengths, std::vector<CandidateTree>& trees) {
  // A draft that reads the rows of several passes takes longer than others.
  const bool had_backlog =
      std::ranges::any_of(chosen, [&sequences](size_t i) { return sequences[i]->pending_parts() > 1; });
  double drafting_seconds = 0;
  const double head_seconds_before = draft_runner_->seconds();
  {
    model::Timer timer(drafting_seconds);
    const std::vector<GrowthLimit> tree_limits = growth_limits(sequences, chosen);
    std::vector<CandidateTree> grown = grow(*draft_runner_, take_input(sequences, chosen),
                                            growth_rule_for(context_lengths, tree_limits), tree_limits);
    for (size_t i = 0; i < chosen.size(); ++i) trees[chosen[i]] = std::move(grown[i]);
    if (drafter_->writes_guesses()) free_guess_pages(sequences, chosen);
  }
  stats_.drafter_seconds += draft_runner_->seconds() - head_seconds_before;
  stats_.grow_seconds += drafting_seconds - (draft_runner_->seconds() - head_seconds_before);
  observe_draft(std::ssize(chosen), drafting_seconds, draft_runner_->warm() && !had_backlog);
}

// Once the trees have grown, the drafter's guesses in the KV cache are not read any more, and the pass needs
// their pages.  Committing no rows frees all pages after the committed tokens.
void Drafting::free_guess_pages(Sequences sequences, std::span<const size_t> chosen) {
  std::vector<model::KvCache::KeptRows> no_rows;
  for (const size_t i : chosen) no_rows.push_back({sequences[i]->seq_id(), {}});
  cache_.commit(no_rows);
}

model::DraftInput Drafting::take_input(Sequences sequences, std::span<const size_t> chosen) {
  model::DraftInput input;
  FeatureRanges ranges;
  for (const size_t i : chosen) {
    PendingRows pending = sequences[i]->take_pending();
    input.segments.push_back(
        {sequences[i]->seq_id(), pending.begin, static_cast<int32_t>(pending.next_ids.size())});
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
  if (!add_text_guesses(sequences, trees)) return false;
  return !uses_cost_model() || cost_model_.pays(trees, context_lengths(sequences));
}

bool Drafting::add_text_guesses(Sequences sequences, std::vector<CandidateTree>& trees) {
  model::Timer growing(stats_.grow_seconds);
  bool found_any = false;
  for (size_t i = 0; i < trees.size(); ++i) {
    const LiveSequence& live = *sequences[i];
    const int64_t max_guesses = std::min(max_suffix_guesses(), max_guess_tokens(live));
    SuffixMatcher::Guess guess = live.suffix_matcher().guess(max_guesses);
    if (options_.suffix_answers) {
      SuffixMatcher::Guess other = answer_matcher_.guess_after(live.suffix_matcher().ids(), max_guesses);
      if (other.match > guess.match) guess = std::move(other);
    }
    found_any |= !guess.ids.empty();
    add_guess(trees[i], guess);
  }
  return found_any;
}

// The target never reads an answer's last token, so no guess can follow that one: hence the 1s.
int64_t Drafting::max_guess_tokens(const LiveSequence& live, int64_t certain_tokens) const {
  const int64_t context_left = target_.config().context - 1 - cache_.length(live.seq_id());
  return std::max<int64_t>(0, std::min(live.tokens_left() - 1, context_left) - certain_tokens);
}

int64_t Drafting::max_depth(const LiveSequence& live, int64_t certain_tokens) const {
  return std::min(depth_of(options_.growth, *drafter_), max_guess_tokens(live, certain_tokens));
}

int64_t Drafting::max_suffix_guesses() const {
  return uses_cost_model() ? max_suffix_guesses_auto : max_suffix_guesses_other;
}

int64_t Drafting::budget_per_tree(Sequences sequences) const {
  const GrowthPolicy& policy = growth_policy(options_.growth.policy);
  const int64_t rows =
      std::clamp(max_batch_rows / std::max<int64_t>(1, std::ssize(sequences)), min_tree_rows, max_tree_rows);
  const int64_t budget = std::min(rows - 1, policy.max_budget) - (options_.suffix ? max_suffix_guesses() : 0);
  const int64_t requested = options_.budget > 0 ? options_.budget : policy.default_budget;
  return requested > 0 ? std::min(budget, requested) : budget;
}

std::vector<GrowthLimit> Drafting::growth_limits(Sequences sequences, std::span<const size_t> chosen,
                                                 int64_t certain_tokens) const {
  const int64_t budget = budget_per_tree(sequences);
  std::vector<GrowthLimit> limits;
  for (const size_t i : chosen) {
    const int64_t depth = max_depth(*sequences[i], certain_tokens);
    limits.push_back({depth > 0 ? budget : 0, depth});
  }
  return limits;
}

// A drafter reads a row together with the token after it.  After the last row of a prompt that token is not
// known yet, so that row is left out here; Engine::finish_prefills adds it (add_pending_rows).
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
        {chunk.live->seq_id(), static_cast<int32_t>(chunk.begin), static_cast<int32_t>(rows)});
    ranges.add({{features, begin, begin + rows}});
  }
  if (reads_last_row_only() || input.segments.empty()) return;
  input.parts = ranges.parts();
  draft_runner_->read(input);
}

void Drafting::add_pending_rows(const model::Features& features, std::span<AcceptedRows> accepted,
                                Sequences drafted) {
  if (!uses_heads_) return;
  std::vector<AcceptedRows*> pending;
  std::vector<int64_t> rows;  // of `features`
  for (AcceptedRows& sequence : accepted) {
    if (!drafted.empty() && drafted.front() == sequence.live) {
      drafted = drafted.subspan(1);
      sequence.live->advance_drafter(std::ssize(sequence.rows));
      continue;
    }
    if (sequence.live->finished()) continue;
    if (reads_last_row_only()) {
      sequence.live->advance_drafter(std::ssize(sequence.rows) - 1);
      sequence.rows.erase(sequence.rows.begin(), sequence.rows.end() - 1);
      sequence.next_ids.erase(sequence.next_ids.begin(), sequence.next_ids.end() - 1);
    }
    pending.push_back(&sequence);
    rows.insert(rows.end(), sequence.rows.begin(), sequence.rows.end());
  }
  if (rows.empty()) return;
  const model::Features copy = features.rows(at::from_blob(rows.data(), {std::ssize(rows)}, at::kLong));
  int64_t begin = 0;
  for (AcceptedRows* sequence : pending) {
    const int64_t end = begin + std::ssize(sequence->rows);
    sequence->live->add_pending({copy, begin, end}, std::move(sequence->next_ids), reads_last_row_only());
    begin = end;
  }
}

void Drafting::add_finished_answer(const LiveSequence& live) {
  if (options_.suffix && options_.suffix_answers)
    answer_matcher_.append(live.suffix_matcher().ids().subspan(live.request().prompt.size()));
}

void Drafting::observe_pass(std::span<const CandidateTree> trees, std::span<const int64_t> context_lengths,
                            double seconds) {
  if (!uses_cost_model()) return;
  int64_t rows = 0, attended_tokens = 0;
  for (size_t i = 0; i < trees.size(); ++i) {
    rows += trees[i].size();
    attended_tokens += trees[i].size() * context_lengths[i];
  }
  cost_model_.observe_pass(rows, attended_tokens, seconds);
}

void Drafting::observe_tree(const CandidateTree& tree, std::span<const int32_t> accepted) {
  if (uses_cost_model()) cost_model_.observe_tree(tree, accepted);
}

void Drafting::observe_draft(int64_t sequences, double seconds, bool representative) {
  if (representative) {
    ++stats_.drafts;
    stats_.draft_seconds += seconds;
  }
  if (uses_cost_model()) cost_model_.observe_draft(sequences, seconds, representative);
}

void Drafting::learn_from_prediction() {
  if (uses_cost_model()) cost_model_.learn_from_prediction();
}

void Drafting::save_costs() const {
  if (uses_cost_model() && (uses_heads_ || options_.suffix)) options_.costs.write(cost_model_.passes());
}

}  // namespace clover::infer
