#include "infer/drafting.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "kernels/gpu.h"
#include "kernels/top_k.h"
#include "model/timer.h"

namespace clover::infer {
namespace {

// Guesses copied from the text so far: under `auto`, which trims them, and under the other policies.
constexpr int64_t most_suffix_automatic = 16, most_suffix_fixed = 8;

}  // namespace

Drafting::Drafting(const model::Target& target, model::Drafter* drafter, model::KvCache& cache,
                   model::PassGraphs& passes, model::Recorder& recorder, const EngineOptions& options,
                   EngineStats& stats)
    : target_(target),
      drafter_(drafter),
      cache_(cache),
      passes_(passes),
      options_(options),
      stats_(stats),
      with_heads_(drafter != nullptr && options.growth.policy != Policy::off) {
  if (with_heads_) draft_.emplace(*drafter, cache, target.config().layers, recorder);
}

std::vector<int64_t> Drafting::contexts(Sequences sequences) const {
  std::vector<int64_t> tokens;
  for (const auto& live : sequences) tokens.push_back(cache_.length(live->sequence()));
  return tokens;
}

// What a row costs, once; what attention adds, whenever the longest context is twice as long as it was.
void Drafting::calibrate(std::span<const int64_t> contexts, Sequences sequences) {
  model::Timer timer(stats_.calibration_seconds);
  if (!std::exchange(calibrated_, true)) calibrate_rows();
  const auto longest = std::max_element(contexts.begin(), contexts.end());
  if (longest == contexts.end() || *longest < 2 * longest_calibrated_) return;
  longest_calibrated_ = *longest;
  calibrate_attention(sequences[longest - contexts.begin()]->sequence());
}

// Passes of few rows twice, for they are what is weighed most.  Where twice the rows take nearly twice as
// long, more rows will too, and need not be waited for.
void Drafting::calibrate_rows() {
  constexpr double nearly_twice = 1.6;
  const auto observe = [this](int64_t rows) {
    const int32_t sequence = cache_.open();
    double seconds = 0;
    if (cache_.fits(sequence, rows)) {
      seconds = timed_pass(sequence, rows);
      costs_.passes().observe(rows, 0, seconds);
    }
    cache_.close(sequence);
    return seconds;
  };
  // The very first one warms caches, which CostCurve allows for.
  for (const int64_t rows : {1, 1, 2, 4, 8, 16, 1, 2, 4}) observe(rows);
  double before = observe(8);
  for (int64_t rows = 16; rows <= std::min<int64_t>(64, options_.max_batch * 16); rows *= 2) {
    const double seconds = observe(rows);
    if (seconds > nearly_twice * before) return;
    before = seconds;
  }
}

// Without and with what `sequence` holds, in turn, because machines speed up and slow down.
void Drafting::calibrate_attention(int32_t sequence) {
  constexpr int64_t rows = 4;
  const int32_t empty = cache_.open();
  const int64_t context = cache_.length(sequence);
  if (context + rows < target_.config().context && cache_.fits(empty, rows) && cache_.fits(sequence, rows)) {
    double without = timed_pass(empty, rows), with = timed_pass(sequence, rows);
    without = std::min(without, timed_pass(empty, rows));
    with = std::min(with, timed_pass(sequence, rows));
    costs_.passes().observe_attention(rows * context, without, with);
  }
  cache_.close(empty);
}

/// Seconds of a pass of a chain of `rows` rows after what `sequence` holds; nothing of it is kept.
double Drafting::timed_pass(int32_t sequence, int64_t rows) {
  model::RowBatch batch;
  for (int64_t row = 0; row < rows; ++row) {
    batch.add(0, sequence, static_cast<int32_t>(row) - 1);
    batch.wanted.push_back(row);
  }
  double seconds = 0;
  {
    // What a GPU runs for the first time it loads first, and then records.
    const int warm_ups = target_.device().is_cpu() ? 0 : 2;
    for (int i = 0; i < warm_ups; ++i) passes_.forward(batch, taps());
    kernels::wait_for(target_.device());
    model::Timer pass(seconds);
    const model::TargetOutput output = passes_.forward(batch, taps());
    if (!target_.device().is_cpu()) kernels::to_host({kernels::arg_max(output.logits)});  // as a step does
  }
  cache_.keep(sequence, {}, target_.config().layers);
  return seconds;
}

std::vector<CandidateTree> Drafting::propose(Sequences sequences) {
  const std::vector<int64_t> held = contexts(sequences);
  if (with_heads_ && automatic()) calibrate(held, sequences);
  std::vector<CandidateTree> trees;
  for (const auto& live : sequences) trees.push_back(CandidateTree::of_root(live->root()));
  const std::vector<size_t> asked = whom_to_draft_for(sequences, held);
  if (!asked.empty()) draft(sequences, asked, held, trees);
  const bool grafted = options_.suffix && graft_suffixes(sequences, trees);
  if (automatic()) {
    if (grafted) calibrate(held, sequences);
    costs_.trim(trees, held, std::ssize(asked));
    note_rest(sequences, asked, trees);
  }
  return trees;
}

std::vector<size_t> Drafting::whom_to_draft_for(Sequences sequences, std::span<const int64_t> contexts) {
  std::vector<size_t> asked;
  if (!with_heads_ || (automatic() && !costs_.worth_drafting(contexts))) return asked;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const bool has_use = longest_guess(*sequences[i]) > 0;  // else its answer ends with this step
    if (has_use && (!automatic() || sequences[i]->rest().over())) asked.push_back(i);
  }
  return asked;
}

void Drafting::note_rest(Sequences sequences, std::span<const size_t> asked,
                         std::span<const CandidateTree> trees) {
  for (const size_t i : asked) {
    const auto& proposers = trees[i].proposer;
    sequences[i]->rest().note(std::find(proposers.begin() + 1, proposers.end(), Proposer::heads) !=
                              proposers.end());
  }
}

// Grows the trees of those who are asked for.
void Drafting::draft(Sequences sequences, std::span<const size_t> asked, std::span<const int64_t> contexts,
                     std::vector<CandidateTree>& trees) {
  std::vector<GrowthLimit> limits;
  bool caught_up = false;
  for (const size_t i : asked) {
    limits.push_back(limit(*sequences[i]));
    caught_up |= sequences[i]->passes_unseen() > 1;
  }
  GrowthRule rule = options_.growth;
  if (automatic()) {
    // Wide where rows are cheap: what cannot pay for its row bounds growth, and `trim` decides on the rest.
    rule.least_joint = costs_.least_worth(contexts);
    rule.top_p = 0.95;
    rule.relative_cut = 0;
  }
  double drafting = 0;
  const double of_heads = draft_->seconds();
  {
    model::Timer timer(drafting);
    std::vector<CandidateTree> grown = grow(*draft_, take_unseen(sequences, asked), rule, limits);
    for (size_t i = 0; i < asked.size(); ++i) trees[asked[i]] = std::move(grown[i]);
  }
  stats_.drafter_seconds += draft_->seconds() - of_heads;
  stats_.grow_seconds += drafting - (draft_->seconds() - of_heads);
  const bool typical = draft_->settled() && !caught_up;
  if (automatic()) costs_.observe_draft(std::ssize(asked), drafting, typical);
}

// What stands side by side since a pass, as the rows of a whole batch do that is drafted for at every step,
// stays in one part.
model::SeenRows Drafting::take_unseen(Sequences sequences, std::span<const size_t> asked) {
  model::SeenRows seen;
  std::vector<LiveSequence::FeatureRange> ranges;
  const auto continues = [&ranges](const LiveSequence::FeatureRange& range) {
    return !ranges.empty() && ranges.back().end == range.begin && ranges.back().of.is_same(range.of);
  };
  for (const size_t i : asked) {
    LiveSequence::Pending pending = sequences[i]->take_pending();
    seen.segments.push_back(
        {sequences[i]->sequence(), pending.begin, static_cast<int32_t>(pending.next_ids.size())});
    for (LiveSequence::FeatureRange& range : pending.parts) {
      if (continues(range))
        ranges.back().end = range.end;
      else
        ranges.push_back(std::move(range));
    }
    seen.next_ids.insert(seen.next_ids.end(), pending.next_ids.begin(), pending.next_ids.end());
  }
  for (const auto& [of, begin, end] : ranges) seen.parts.push_back(of.slice(begin, end));
  return seen;
}

bool Drafting::graft_suffixes(Sequences sequences, std::vector<CandidateTree>& trees) {
  model::Timer growing(stats_.grow_seconds);
  const int64_t most = automatic() ? most_suffix_automatic : most_suffix_fixed;
  bool any = false;
  for (size_t i = 0; i < trees.size(); ++i) {
    const LiveSequence& live = *sequences[i];
    const int64_t longest = std::min(most, longest_guess(live));
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

// The last token of an answer is never read, and a guess beyond it could not be used.
int64_t Drafting::longest_guess(const LiveSequence& live) const {
  const int64_t room = target_.config().context - 1 - cache_.length(live.sequence());
  return std::max<int64_t>(0, std::min(live.tokens_left() - 1, room));
}

GrowthLimit Drafting::limit(const LiveSequence& live) const {
  const int64_t depth = std::min(drafter_->max_depth(), longest_guess(live));
  int64_t budget = most_tree_rows - 1 - (options_.suffix ? most_suffix_automatic : 0);
  if (options_.budget > 0) {
    budget = std::min(budget, options_.budget);
  } else if (options_.growth.policy == Policy::clover) {
    budget = 4;
  }
  return {depth > 0 ? budget : 0, depth};
}

// The drafter's own layers read a prompt with the target, so that pages which others share hold them too.
void Drafting::read(LiveSequence& live, const model::Features& features, int64_t begin, int64_t end) {
  if (!with_heads_ || begin >= end) return;
  live.skip(end - begin);
  if (drafter_->kv_layers() == 0) return;
  const std::span<const int64_t> after = live.to_read().subspan(begin + 1, end - begin);
  const model::Segment segment{live.sequence(), static_cast<int32_t>(begin),
                               static_cast<int32_t>(end - begin)};
  draft_->prime({{features.slice(0, end - begin)}, {after.begin(), after.end()}, {segment}}, {}, 0);
}

void Drafting::remember(const model::Features& features, std::span<Seen> seen) {
  if (!with_heads_) return;
  const bool last_only = drafter_->kv_layers() == 0;  // it looks back at nothing
  std::vector<int64_t> rows;
  for (Seen& one : seen) {
    if (one.live->finished()) continue;
    if (last_only) {
      one.live->skip(std::ssize(one.rows) - 1);
      one.rows.erase(one.rows.begin(), one.rows.end() - 1);
      one.next_ids.erase(one.next_ids.begin(), one.next_ids.end() - 1);
    }
    rows.insert(rows.end(), one.rows.begin(), one.rows.end());
  }
  if (rows.empty()) return;
  const model::Features picked = features.rows(at::from_blob(rows.data(), {std::ssize(rows)}, at::kLong));
  int64_t begin = 0;
  for (Seen& one : seen) {
    if (one.live->finished()) continue;
    const int64_t end = begin + std::ssize(one.rows);
    one.live->remember({picked, begin, end}, std::move(one.next_ids), last_only);
    begin = end;
  }
}

void Drafting::finished(const LiveSequence& live) {
  if (options_.suffix && options_.suffix_answers)
    answers_.append(live.suffix().ids().subspan(live.request().prompt.size()));
}

void Drafting::observe_pass(Sequences sequences, std::span<const CandidateTree> trees, double seconds) {
  if (!automatic()) return;
  int64_t rows = 0, positions = 0;
  for (size_t i = 0; i < trees.size(); ++i) {
    rows += trees[i].size();
    positions += trees[i].size() * cache_.length(sequences[i]->sequence());
  }
  costs_.observe_pass(rows, positions, seconds);
}

void Drafting::observe_tree(const CandidateTree& tree, std::span<const int32_t> accepted) {
  if (automatic()) costs_.observe_tree(tree, accepted);
}

}  // namespace clover::infer
