#include "infer/engine/drafting.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "model/graphs/timer.h"

namespace clover::infer {
namespace {

// Guesses copied from the text so far: under `auto`, which trims them, and under the other policies.
constexpr int64_t most_suffix_automatic = 16, most_suffix_fixed = 8;

/// Features of rows that a drafter has not seen.  What stands side by side since a pass, as the rows of
/// a whole batch do that is drafted for at every step, stays in one part.
class Ranges {
 public:
  void add(std::vector<LiveSequence::FeatureRange> ranges) {
    for (LiveSequence::FeatureRange& range : ranges) {
      rows_ += range.end - range.begin;
      if (!all_.empty() && all_.back().end == range.begin && all_.back().of.is_same(range.of))
        all_.back().end = range.end;
      else
        all_.push_back(std::move(range));
    }
  }
  int64_t rows() const { return rows_; }
  std::vector<model::Features> parts() const {
    std::vector<model::Features> parts;
    for (const auto& [of, begin, end] : all_) parts.push_back(of.slice(begin, end));
    return parts;
  }

 private:
  std::vector<LiveSequence::FeatureRange> all_;
  int64_t rows_ = 0;
};

/// What a draft sees that begins before it is known which rows of a pass are accepted.
struct RowsAhead {
  model::JudgedRows judged;
  model::SeenRows seen;
  Ranges behind;  // features of passes before that one, which stand behind its own

  /// Of one sequence: rows of those passes, then room for `most` of the tree at `place`.
  void add(int32_t sequence, LiveSequence::Pending pending, int64_t most, kernels::TreePlace& place) {
    const int64_t before = std::ssize(pending.next_ids);
    for (int64_t row = 0; row < before; ++row)
      judged.seen.push_back(std::ssize(judged.ids) + behind.rows() + row);
    behind.add(std::move(pending.parts));
    place.seen = std::ssize(judged.seen);
    place.seen_rows = most;
    judged.seen.resize(place.seen + most);
    seen.next_ids.insert(seen.next_ids.end(), pending.next_ids.begin(), pending.next_ids.end());
    seen.next_ids.resize(judged.seen.size());
    seen.segments.push_back({sequence, pending.begin, static_cast<int32_t>(before + most)});
  }
};

/// Whether rows of its last pass wait for a draft.
bool remembers(LiveSequence& live) {
  return !live.finished() && live.ahead().tree < 0;
}

}  // namespace

Drafting::Drafting(const model::Target& target, model::Drafter* drafter, model::KvCache& cache,
                   model::PassGraphs& passes, model::Recorder& recorder, const EngineOptions& options,
                   EngineStats& stats)
    : target_(target),
      drafter_(drafter),
      cache_(cache),
      recorder_(recorder),
      options_(options),
      stats_(stats),
      with_heads_(drafter != nullptr && options.growth.policy != Policy::off),
      calibration_(target, cache, passes, taps(), options.max_batch, options.typical) {
  if (with_heads_) draft_.emplace(*drafter, cache, target.config().layers, recorder);
  if (automatic()) costs_.passes() = options.costs.read();
}

std::vector<int64_t> Drafting::contexts(Sequences sequences) const {
  std::vector<int64_t> tokens;
  for (LiveSequence* live : sequences) tokens.push_back(cache_.length(live->sequence()));
  return tokens;
}

void Drafting::calibrate(Sequences sequences) {
  model::Timer timer(stats_.calibration_seconds);
  const double recorded = recorder_.seconds();
  std::vector<int32_t> numbers;
  for (LiveSequence* live : sequences) numbers.push_back(live->sequence());
  calibration_.run(numbers, costs_.passes());
  stats_.calibration_seconds -= recorder_.seconds() - recorded;
}

std::vector<CandidateTree> Drafting::propose(Sequences sequences) {
  const std::vector<int64_t> held = contexts(sequences);
  std::vector<CandidateTree> trees;
  for (LiveSequence* live : sequences) trees.push_back(CandidateTree::of_root(live->root()));
  // Who has joined since waits for the next drafts.
  const bool weighed = std::any_of(sequences.begin(), sequences.end(),
                                   [](LiveSequence* live) { return live->ahead().weighed; });
  std::vector<size_t> asked;
  if (weighed) asked = take_begun(sequences, trees);
  if (with_heads_ && automatic()) calibrate(sequences);
  if (asked.empty()) {
    asked = weighed ? wanted(sequences) : whom_to_draft_for(sequences, held, 0);
    if (!asked.empty()) draft(sequences, asked, held, trees);
  }
  const bool grafted = options_.suffix && graft_suffixes(sequences, trees);
  if (automatic()) {
    if (grafted) calibrate(sequences);
    costs_.trim(trees, held, std::ssize(asked));
    note_rest(sequences, asked, trees);
  }
  return trees;
}

/// `sure`: tokens of each that are sure to come before what is guessed.
std::vector<size_t> Drafting::whom_to_draft_for(Sequences sequences, std::span<const int64_t> contexts,
                                                int64_t sure) {
  std::vector<size_t> asked;
  if (!with_heads_ || (automatic() && !costs_.worth_drafting(contexts))) return asked;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const bool has_use = longest_guess(*sequences[i], sure) > 0;  // else its answer ends with this step
    if (has_use && (!automatic() || sequences[i]->rest().over())) asked.push_back(i);
  }
  return asked;
}

/// Those whose drafts the last step could not begin.
std::vector<size_t> Drafting::wanted(Sequences sequences) const {
  std::vector<size_t> asked;
  for (size_t i = 0; i < sequences.size(); ++i)
    if (sequences[i]->ahead().wanted && longest_guess(*sequences[i]) > 0) asked.push_back(i);
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

GrowthRule Drafting::rule_for(std::span<const int64_t> contexts) const {
  GrowthRule rule = options_.growth;
  if (automatic()) {
    // Wide where rows are cheap: what cannot pay for its row bounds growth, and `trim` decides on the rest.
    rule.least_joint = costs_.least_worth(contexts);
    rule.top_p = 0.95;
    rule.relative_cut = 0;
  }
  return rule;
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
  double drafting = 0;
  const double of_heads = draft_->seconds();
  {
    model::Timer timer(drafting);
    std::vector<CandidateTree> grown =
        grow(*draft_, take_unseen(sequences, asked), rule_for(contexts), limits);
    for (size_t i = 0; i < asked.size(); ++i) trees[asked[i]] = std::move(grown[i]);
  }
  stats_.drafter_seconds += draft_->seconds() - of_heads;
  stats_.grow_seconds += drafting - (draft_->seconds() - of_heads);
  const bool typical = draft_->settled() && !caught_up;
  if (automatic()) costs_.observe_draft(std::ssize(asked), drafting, typical);
}

model::SeenRows Drafting::take_unseen(Sequences sequences, std::span<const size_t> asked) {
  model::SeenRows seen;
  Ranges ranges;
  for (const size_t i : asked) {
    LiveSequence::Pending pending = sequences[i]->take_pending();
    seen.segments.push_back(
        {sequences[i]->sequence(), pending.begin, static_cast<int32_t>(pending.next_ids.size())});
    ranges.add(std::move(pending.parts));
    seen.next_ids.insert(seen.next_ids.end(), pending.next_ids.begin(), pending.next_ids.end());
  }
  seen.parts = ranges.parts();
  return seen;
}

/// All of a pass's rows, and nothing to be seen of them yet.
model::JudgedRows Drafting::judged_rows(Sequences sequences, std::span<const CandidateTree> trees) const {
  model::JudgedRows judged;
  for (size_t i = 0; i < trees.size(); ++i) {
    const int64_t base = std::ssize(judged.ids), rows = trees[i].size();
    judged.ids.insert(judged.ids.end(), trees[i].ids.begin(), trees[i].ids.end());
    for (const int32_t parent : trees[i].parent) judged.parents.push_back(parent < 0 ? -1 : base + parent);
    cache_.add_slots(sequences[i]->sequence(), rows, judged.slots);
    judged.trees.push_back({.row = base, .rows = rows});
  }
  return judged;
}

/// Rows that may be accepted of a tree and that the drafter has to see then.
int64_t Drafting::most_seen(const CandidateTree& tree) const {
  return last_only() ? 1 : *std::max_element(tree.depth.begin(), tree.depth.end()) + 1;
}

// A draft that sees more rows than are recorded is better begun when it is known how few of them count.
Drafting::Next Drafting::begin_next(Sequences sequences, std::span<const CandidateTree> trees,
                                    const at::Tensor& tokens, const model::Features& features) {
  if (!with_heads_) return Next::nothing;
  if (options_.growth.policy == Policy::fixed_tree) return Next::unknown;
  const double placing = trees_there_ ? seconds_since(*std::exchange(trees_there_, std::nullopt)) : 0;
  const std::vector<int64_t> held = contexts(sequences);
  const std::vector<size_t> asked = whom_to_draft_for(sequences, held, 1);
  for (LiveSequence* live : sequences) live->ahead() = {.weighed = true};
  if (asked.empty()) return Next::nothing;
  int64_t most = 0;
  for (const size_t i : asked) most += most_seen(trees[i]) + sequences[i]->rows_unseen();
  if (most > model::most_recorded_rows) {
    for (const size_t i : asked) sequences[i]->ahead().wanted = true;
    return Next::unknown;
  }
  begun_ = {.sequences = std::ssize(asked), .typical = true, .placing = placing};
  RowsAhead rows{judged_rows(sequences, trees), {}, {}};
  rows.judged.tokens = tokens;
  rows.judged.features = features;
  std::vector<GrowthLimit> limits;
  for (const size_t i : asked) {
    LiveSequence& live = *sequences[i];
    live.ahead().tree = rows.judged.trees[i].frontier = std::ssize(limits);
    limits.push_back(limit(live, 1));
    begun_.typical &= live.passes_unseen() <= 1;
    LiveSequence::Pending pending = live.take_pending();
    if (last_only()) pending = {};
    rows.add(live.sequence(), std::move(pending), most_seen(trees[i]), rows.judged.trees[i]);
  }
  rows.seen.parts = rows.behind.parts();
  begin_growing(*draft_, rows.judged, rows.seen, rule_for(held), limits);
  return Next::drafts;
}

bool Drafting::guesses_from_text(Sequences sequences) {
  if (!options_.suffix) return false;
  std::vector<CandidateTree> trees;
  for (const LiveSequence* live : sequences) trees.push_back(CandidateTree::of_root(live->root()));
  if (!graft_suffixes(sequences, trees)) return false;
  if (automatic()) costs_.trim(trees, contexts(sequences), 0);
  return std::any_of(trees.begin(), trees.end(), [](const CandidateTree& tree) { return tree.size() > 1; });
}

/// From now on it would have waited for drafts.
void Drafting::use_gpu() {
  if (!begun_.hidden) begun_.hidden = seconds_since(begun_.pass_over);
}

std::vector<size_t> Drafting::take_begun(Sequences sequences, std::vector<CandidateTree>& trees) {
  if (automatic()) costs_.settle_promise();
  std::vector<size_t> asked;
  for (size_t i = 0; i < sequences.size(); ++i)
    if (sequences[i]->ahead().tree >= 0 && longest_guess(*sequences[i]) > 0) asked.push_back(i);
  if (asked.empty()) return asked;
  use_gpu();
  double drafting = 0;
  {
    model::Timer timer(stats_.drafter_seconds);
    const model::DraftGraphs::Grown grown = draft_->finish();
    drafting = std::max(grown.seconds, *begun_.hidden) + begun_.placing;
    for (const size_t i : asked)
      take(grown.trees, sequences[i]->ahead().tree, limit(*sequences[i]).max_depth, trees[i]);
  }
  if (automatic()) costs_.observe_draft(begun_.sequences, drafting, begun_.typical && draft_->settled());
  trees_there_ = Clock::now();
  return asked;
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
int64_t Drafting::longest_guess(const LiveSequence& live, int64_t sure) const {
  const int64_t room = target_.config().context - 1 - cache_.length(live.sequence());
  return std::max<int64_t>(0, std::min(live.tokens_left() - 1, room) - sure);
}

GrowthLimit Drafting::limit(const LiveSequence& live, int64_t sure) const {
  const int64_t depth = std::min(drafter_->max_depth(), longest_guess(live, sure));
  int64_t budget = most_tree_rows - 1 - (options_.suffix ? most_suffix_automatic : 0);
  if (options_.budget > 0) {
    budget = std::min(budget, options_.budget);
  } else if (options_.growth.policy == Policy::clover) {
    budget = 4;
  }
  return {depth > 0 ? budget : 0, depth};
}

// The drafter's own layers read a prompt with the target, so that pages which others share hold them too. The
// last token of what is read has no successor yet: it is seen when it has.
void Drafting::read(std::span<const PromptChunk> chunks, const model::Features& features, int64_t first) {
  if (!with_heads_) return;
  model::SeenRows seen;
  Ranges ranges;
  for (const PromptChunk& chunk : chunks) {
    const int64_t begin = std::exchange(first, first + chunk.rows), rows = chunk.rows - (chunk.last ? 1 : 0);
    chunk.live->skip(rows);
    if (rows == 0) continue;
    const std::span<const int64_t> next = chunk.live->to_read().subspan(chunk.begin + 1, rows);
    seen.next_ids.insert(seen.next_ids.end(), next.begin(), next.end());
    seen.segments.push_back(
        {chunk.live->sequence(), static_cast<int32_t>(chunk.begin), static_cast<int32_t>(rows)});
    ranges.add({{features, begin, begin + rows}});
  }
  if (last_only() || seen.segments.empty()) return;
  seen.parts = ranges.parts();
  draft_->prime(seen, {}, 0);
}

void Drafting::remember(const model::Features& features, std::span<Seen> seen) {
  if (!with_heads_) return;
  std::vector<int64_t> rows;
  for (Seen& one : seen) {
    if (one.live->ahead().tree >= 0) one.live->skip(std::ssize(one.rows));  // a draft has begun with them
    if (!remembers(*one.live)) continue;
    if (last_only()) {
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
    if (!remembers(*one.live)) continue;
    const int64_t end = begin + std::ssize(one.rows);
    one.live->remember({picked, begin, end}, std::move(one.next_ids), last_only());
    begin = end;
  }
}

void Drafting::finished(const LiveSequence& live) {
  if (options_.suffix && options_.suffix_answers)
    answers_.append(live.suffix().ids().subspan(live.request().prompt.size()));
}

void Drafting::observe_pass(std::span<const CandidateTree> trees, std::span<const int64_t> contexts,
                            double seconds) {
  if (!automatic()) return;
  int64_t rows = 0, positions = 0;
  for (size_t i = 0; i < trees.size(); ++i) {
    rows += trees[i].size();
    positions += trees[i].size() * contexts[i];
  }
  costs_.observe_pass(rows, positions, seconds);
}

void Drafting::observe_tree(const CandidateTree& tree, std::span<const int32_t> accepted) {
  if (automatic()) costs_.observe_tree(tree, accepted);
}

void Drafting::keep_costs() const {
  if (automatic() && (with_heads_ || options_.suffix)) options_.costs.write(costs_.passes());
}

}  // namespace clover::infer
