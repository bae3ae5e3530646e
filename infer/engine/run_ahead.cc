#include "infer/engine/run_ahead.h"

#include <algorithm>
#include <utility>

#include "infer/engine/feature_ranges.h"
#include "model/graphs/captured_sizes.h"
#include "model/graphs/timer.h"

namespace clover::infer {
namespace {

/// Calls `found(i, j)` where sequences[i] is earlier[j]: those of `earlier` that have not finished or been
/// preempted since.  Both stand in the order in which they began to decode.
template <class Found>
void for_each_remaining(Sequences sequences, Sequences earlier, const Found& found) {
  auto from = sequences.begin();
  for (size_t j = 0; j < earlier.size(); ++j) {
    const auto place = std::find(from, sequences.end(), earlier[j]);
    if (place == sequences.end()) continue;
    found(static_cast<size_t>(place - sequences.begin()), j);
    from = place + 1;
  }
}

/// What a drafter reads behind a pass that is not verified yet.
struct UnverifiedInput {
  model::UnverifiedTrees trees;
  model::DraftInput input;
  FeatureRanges earlier;  // pending features of earlier passes

  /// Adds one sequence: its pending rows, then room for `most` accepted rows of the tree at `place`.
  void add(int32_t sequence, PendingRows pending, int64_t most, kernels::TreeRows& place) {
    const int64_t before = std::ssize(pending.next_ids);
    // Pending rows are numbered behind the pass's own (UnverifiedTrees::drafter_rows).
    for (int64_t row = 0; row < before; ++row)
      trees.drafter_rows.push_back(std::ssize(trees.ids) + earlier.rows() + row);
    earlier.add(std::move(pending.parts));
    place.first_drafter_row = std::ssize(trees.drafter_rows);
    place.drafter_rows = most;
    trees.drafter_rows.resize(place.first_drafter_row + most);
    input.next_ids.insert(input.next_ids.end(), pending.next_ids.begin(), pending.next_ids.end());
    input.next_ids.resize(trees.drafter_rows.size());
    input.segments.push_back({sequence, pending.begin, static_cast<int32_t>(before + most)});
  }
};

double seconds_between(std::chrono::steady_clock::time_point begin,
                       std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

void DraftClock::mark_launch() {
  launch_delay_ = trees_read_ ? seconds_between(*std::exchange(trees_read_, std::nullopt), Clock::now()) : 0;
}

double DraftClock::step_seconds(double gpu_seconds) const {
  return std::max(gpu_seconds, seconds_between(pass_done_, waited_)) + launch_delay_;
}

void RunAhead::reset() {
  state_ = State::idle;
  considered_.clear();
  deferred_.clear();
  drafted_.clear();
  next_.reset();
}

DecodePass* RunAhead::begin(DecodePass& pass) {
  reset();
  if (!runner_.samples_on_device() || pass.trees.empty()) return nullptr;
  if (!drafting_.uses_heads()) return begin_pass(pass);
  if (!drafting_.can_draft_ahead()) return nullptr;
  clock_.mark_launch();
  const std::vector<int64_t> context_lengths = drafting_.context_lengths(pass.sequences);
  const std::vector<size_t> chosen = drafting_.choose(pass.sequences, context_lengths, /*certain_tokens=*/1);
  considered_ = pass.sequences;
  if (chosen.empty()) return begin_pass(pass);
  // A draft that reads more rows than are captured is better launched when it is known which are accepted.
  int64_t most = 0;
  for (const size_t i : chosen) most += most_accepted(pass.trees[i]) + pass.sequences[i]->pending_rows();
  if (most > model::most_captured_rows) {
    for (const size_t i : chosen) deferred_.push_back(pass.sequences[i]);
    return nullptr;
  }
  begin_draft(pass, chosen, context_lengths);
  return nullptr;
}

void RunAhead::begin_draft(DecodePass& pass, std::span<const size_t> chosen,
                           std::span<const int64_t> context_lengths) {
  UnverifiedInput draft_input{unverified(pass), {}, {}};
  representative_ = true;
  for (const size_t i : chosen) {
    LiveSequence& live = *pass.sequences[i];
    draft_input.trees.places[i].last_row_index = std::ssize(drafted_);
    representative_ &= live.pending_passes() <= 1;
    PendingRows pending = live.take_pending();
    if (drafting_.reads_last_row_only()) pending = {};  // the pass's last accepted row replaces them
    draft_input.add(live.sequence(), std::move(pending), most_accepted(pass.trees[i]),
                    draft_input.trees.places[i]);
    drafted_.push_back(&live);
  }
  draft_input.input.parts = draft_input.earlier.parts();
  const std::vector<GrowthLimit> limits = drafting_.limits(pass.sequences, chosen, /*certain_tokens=*/1);
  begin_growing(drafting_.runner(), draft_input.trees, draft_input.input,
                drafting_.rule_for(context_lengths, limits), limits);
  pass.commit = CommitState::compacted;
  state_ = State::draft_in_flight;
}

DecodePass* RunAhead::begin_pass(DecodePass& pass) {
  if (!pass_can_begin(pass)) return nullptr;
  std::vector<int64_t> rows;  // of each sequence in this pass and the next: 2 if it goes on, else 1
  for (const LiveSequence* live : pass.sequences) rows.push_back(PassRunner::continues(*live) ? 2 : 1);
  if (std::ranges::count(rows, 2) == 0 || !schedule_.room_for(rows)) return nullptr;
  next_ = runner_.begin_behind(pass, schedule_.next_prefill_chunks(options_.prefill_chunk, rows));
  state_ = State::pass_in_flight;
  return &*next_;
}

// A sequence whose prompt ends in `pass` decodes in the next one, from a token that is not known yet.
// Logits edited by the text so far need the token of this pass first.
bool RunAhead::pass_can_begin(const DecodePass& pass) {
  if (!pass.plain() || pass.ends_prompts() || drafting_.text_guesses_pay(pass.sequences)) return false;
  return !pass.edits_logits || std::ranges::none_of(pass.sequences, [](LiveSequence* live) {
    return live->controlled() && live->controlled()->depends_on_text();
  });
}

/// All rows of the pass's trees; the drafter reads none of them yet.
model::UnverifiedTrees RunAhead::unverified(const DecodePass& pass) const {
  const int64_t all = pass.tree_rows();
  model::UnverifiedTrees trees;
  trees.tokens = pass.tokens.narrow(0, 0, all);
  trees.features = pass.output.features.slice(0, all);
  for (size_t i = 0; i < pass.trees.size(); ++i) {
    const CandidateTree& tree = pass.trees[i];
    const int64_t base = std::ssize(trees.ids), rows = tree.size();
    trees.ids.insert(trees.ids.end(), tree.ids.begin(), tree.ids.end());
    for (const int32_t parent : tree.parent) trees.parents.push_back(parent < 0 ? -1 : base + parent);
    cache_.add_slots(pass.sequences[i]->sequence(), rows, trees.slots);
    trees.places.push_back({.row = base, .rows = rows});
  }
  return trees;
}

/// Rows of a tree that may be accepted and that the drafter reads then.
int64_t RunAhead::most_accepted(const CandidateTree& tree) const {
  return drafting_.reads_last_row_only() ? 1 : *std::max_element(tree.depth.begin(), tree.depth.end()) + 1;
}

std::optional<DecodePass> RunAhead::take_pass(Sequences decoding) {
  if (state_ != State::pass_in_flight) return std::nullopt;
  state_ = State::idle;
  std::optional<DecodePass> pass = std::exchange(next_, std::nullopt);
  std::vector<int64_t> rows, chunks;
  for_each_remaining(decoding, pass->sequences,
                     [&](size_t, size_t j) { rows.push_back(static_cast<int64_t>(j)); });
  for (int64_t i = 0; i < std::ssize(pass->chunks); ++i)
    if (pass->chunks[i].live->admitted()) chunks.push_back(i);
  if (rows.empty() && chunks.empty()) return std::nullopt;
  if (rows.size() < pass->sequences.size() || chunks.size() < pass->chunks.size())
    runner_.retain(*pass, rows, chunks);
  // The roots were unknown when the pass began.
  for (size_t i = 0; i < rows.size(); ++i)
    pass->trees[i] = CandidateTree::of_root(pass->sequences[i]->root());
  return pass;
}

DraftChoice RunAhead::take_draft(Sequences sequences, std::vector<CandidateTree>& trees) {
  const bool in_flight = std::exchange(state_, State::idle) == State::draft_in_flight;
  DraftChoice choice;
  // The choice holds as long as one of the sequences it was made for still decodes.
  for_each_remaining(sequences, considered_, [&](size_t, size_t) { choice.made_by_last_step = true; });
  if (!choice.made_by_last_step) return choice;
  drafting_.learn_from_prediction();
  const auto has_room = [&](size_t i) { return drafting_.max_guess_tokens(*sequences[i]) > 0; };
  for_each_remaining(sequences, deferred_, [&](size_t i, size_t) {
    if (has_room(i)) choice.to_draft.push_back(i);
  });
  std::vector<int64_t> grown_trees;  // of choice.grown
  for_each_remaining(sequences, drafted_, [&](size_t i, size_t tree) {
    if (!has_room(i)) return;
    choice.grown.push_back(i);
    grown_trees.push_back(static_cast<int64_t>(tree));
  });
  if (!in_flight || choice.grown.empty()) return choice;
  clock_.mark_wait();
  double seconds = 0;
  {
    model::Timer timer(stats_.drafter_seconds);
    const model::DraftRunner::TimedTrees grown = drafting_.runner().finish();
    seconds = clock_.step_seconds(grown.seconds);
    for (size_t k = 0; k < grown_trees.size(); ++k) {
      const size_t i = choice.grown[k];
      add_nodes(grown.trees, grown_trees[k], drafting_.max_depth(*sequences[i]), trees[i]);
    }
  }
  drafting_.observe_draft(std::ssize(drafted_), seconds, representative_ && drafting_.runner().warm());
  clock_.mark_trees_read();
  return choice;
}

}  // namespace clover::infer
