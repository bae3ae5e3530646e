#include "infer/engine/run_ahead.h"

#include <algorithm>
#include <utility>

#include "infer/engine/feature_ranges.h"
#include "model/graphs/captured_sizes.h"
#include "model/graphs/timer.h"

namespace clover::infer {
namespace {

/// Calls `visit(i, j)` for each sequence of `earlier` that is still in `sequences`, where sequences[i] ==
/// earlier[j]: it has neither finished nor been preempted.  Both are in the order in which sequences began to
/// decode.
template <class Visit>
void for_each_remaining(Sequences sequences, Sequences earlier, const Visit& visit) {
  auto from = sequences.begin();
  for (size_t j = 0; j < earlier.size(); ++j) {
    const auto place = std::find(from, sequences.end(), earlier[j]);
    if (place == sequences.end()) continue;
    visit(static_cast<size_t>(place - sequences.begin()), j);
    from = place + 1;
  }
}

/// The arguments of a draft that begins before the pass under way is verified.
struct UnverifiedInput {
  model::UnverifiedTrees trees;
  model::DraftInput input;
  FeatureRanges pending_features;  // of earlier passes

  /// Adds a sequence: its pending rows, then room for up to `max_accepted` accepted rows of its tree `tree`,
  /// which the GPU fills in.
  void add(int32_t sequence, PendingRows pending, int64_t max_accepted, kernels::TreeRows& tree) {
    const int64_t pending_count = std::ssize(pending.next_ids);
    // UnverifiedTrees::drafter_rows numbers the rows of the pass first, then the pending ones.
    for (int64_t row = 0; row < pending_count; ++row)
      trees.drafter_rows.push_back(std::ssize(trees.ids) + pending_features.rows() + row);
    pending_features.add(std::move(pending.parts));
    tree.first_drafter_row = std::ssize(trees.drafter_rows);
    tree.drafter_rows = max_accepted;
    trees.drafter_rows.resize(tree.first_drafter_row + max_accepted);
    input.next_ids.insert(input.next_ids.end(), pending.next_ids.begin(), pending.next_ids.end());
    input.next_ids.resize(trees.drafter_rows.size());
    input.segments.push_back({sequence, pending.begin, static_cast<int32_t>(pending_count + max_accepted)});
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

// The GPU's draft and the CPU's work from pass_done_ to wait_begun_ run side by side: the longer one counts.
double DraftClock::step_seconds(double gpu_seconds) const {
  return std::max(gpu_seconds, seconds_between(pass_done_, wait_begun_)) + launch_delay_;
}

void RunAhead::reset() {
  state_ = State::idle;
  considered_sequences_.clear();
  deferred_sequences_.clear();
  drafted_sequences_.clear();
  next_pass_.reset();
}

DecodePass* RunAhead::begin(DecodePass& pass) {
  reset();
  if (!pass_runner_.samples_on_device() || pass.trees.empty()) return nullptr;
  if (!drafting_.uses_heads()) return begin_pass(pass);
  if (!drafting_.can_draft_ahead()) return nullptr;
  draft_clock_.mark_launch();
  const std::vector<int64_t> context_lengths = drafting_.context_lengths(pass.sequences);
  const std::vector<size_t> chosen =
      drafting_.choose_sequences(pass.sequences, context_lengths, /*certain_tokens=*/1);
  considered_sequences_ = pass.sequences;
  if (chosen.empty()) return begin_pass(pass);
  // A draft that may read more rows than a CUDA graph holds is faster after verification, when it reads only
  // those that were accepted.
  int64_t max_rows = 0;
  for (const size_t i : chosen)
    max_rows += max_accepted_rows(pass.trees[i]) + pass.sequences[i]->pending_rows();
  if (max_rows > model::max_captured_rows) {
    for (const size_t i : chosen) deferred_sequences_.push_back(pass.sequences[i]);
    return nullptr;
  }
  begin_draft(pass, chosen, context_lengths);
  return nullptr;
}

void RunAhead::begin_draft(DecodePass& pass, std::span<const size_t> chosen,
                           std::span<const int64_t> context_lengths) {
  UnverifiedInput draft_input{unverified_trees(pass), {}, {}};
  representative_ = true;
  for (const size_t i : chosen) {
    LiveSequence& live = *pass.sequences[i];
    // The new tree's number: where verification writes the row that this tree is drafted from.
    draft_input.trees.tree_rows[i].last_row_index = std::ssize(drafted_sequences_);
    representative_ &= live.pending_parts() <= 1;
    PendingRows pending = live.take_pending();
    if (drafting_.reads_last_row_only()) pending = {};  // the pass yields a newer last row
    draft_input.add(live.seq_id(), std::move(pending), max_accepted_rows(pass.trees[i]),
                    draft_input.trees.tree_rows[i]);
    drafted_sequences_.push_back(&live);
  }
  draft_input.input.parts = draft_input.pending_features.parts();
  const std::vector<GrowthLimit> limits =
      drafting_.growth_limits(pass.sequences, chosen, /*certain_tokens=*/1);
  begin_growing(drafting_.draft_runner(), draft_input.trees, draft_input.input,
                drafting_.growth_rule_for(context_lengths, limits), limits);
  pass.commit_state = CommitState::compacted;
  state_ = State::draft_in_flight;
}

DecodePass* RunAhead::begin_pass(DecodePass& pass) {
  if (!pass_can_begin(pass)) return nullptr;
  std::vector<int64_t> rows;  // [S] of each sequence, this pass and the next together: 1 or 2
  for (const LiveSequence* live : pass.sequences) rows.push_back(PassRunner::continues(*live) ? 2 : 1);
  if (std::ranges::count(rows, 2) == 0 || !scheduler_.has_room_for(rows)) return nullptr;
  next_pass_ = pass_runner_.begin_next(pass, scheduler_.next_prefill_chunks(options_.prefill_chunk, rows));
  state_ = State::pass_in_flight;
  return &*next_pass_;
}

// Not if `pass` ends a prompt: the first tree of that sequence needs the token of `pass`.  Nor if logits are
// edited depending on the text so far, which includes that token.
bool RunAhead::pass_can_begin(const DecodePass& pass) {
  if (!pass.plain() || pass.ends_prompts() || drafting_.text_guesses_pay(pass.sequences)) return false;
  return !pass.edits_logits || std::ranges::none_of(pass.sequences, [](LiveSequence* live) {
    return live->logit_editor() && live->logit_editor()->depends_on_text();
  });
}

/// The trees of the pass, with no range of drafter_rows yet.
model::UnverifiedTrees RunAhead::unverified_trees(const DecodePass& pass) const {
  const int64_t row_count = pass.tree_rows();
  model::UnverifiedTrees trees;
  trees.tokens = pass.device_tokens.narrow(0, 0, row_count);
  trees.features = pass.output.features.slice(0, row_count);
  for (size_t i = 0; i < pass.trees.size(); ++i) {
    const CandidateTree& tree = pass.trees[i];
    const int64_t base = std::ssize(trees.ids), rows = tree.size();
    trees.ids.insert(trees.ids.end(), tree.ids.begin(), tree.ids.end());
    for (const int32_t parent : tree.parent) trees.parents.push_back(parent < 0 ? -1 : base + parent);
    cache_.append_slots(pass.sequences[i]->seq_id(), rows, trees.slots);
    trees.tree_rows.push_back({.row = base, .rows = rows});
  }
  return trees;
}

/// Max rows of a tree that the drafter reads after verification.
int64_t RunAhead::max_accepted_rows(const CandidateTree& tree) const {
  return drafting_.reads_last_row_only() ? 1 : *std::max_element(tree.depth.begin(), tree.depth.end()) + 1;
}

std::optional<DecodePass> RunAhead::take_pass(Sequences decoding) {
  if (state_ != State::pass_in_flight) return std::nullopt;
  state_ = State::idle;
  std::optional<DecodePass> pass = std::exchange(next_pass_, std::nullopt);
  std::vector<int64_t> remaining, chunks;  // indices into pass->sequences and pass->chunks
  for_each_remaining(decoding, pass->sequences,
                     [&](size_t, size_t j) { remaining.push_back(static_cast<int64_t>(j)); });
  for (int64_t i = 0; i < std::ssize(pass->chunks); ++i)
    if (pass->chunks[i].live->admitted()) chunks.push_back(i);
  if (remaining.empty() && chunks.empty()) return std::nullopt;
  if (remaining.size() < pass->sequences.size() || chunks.size() < pass->chunks.size())
    pass_runner_.retain(*pass, remaining, chunks);
  // The roots were unknown when the pass began.
  for (size_t i = 0; i < remaining.size(); ++i)
    pass->trees[i] = CandidateTree::of_root(pass->sequences[i]->root());
  return pass;
}

DraftChoice RunAhead::take_draft(Sequences sequences, std::vector<CandidateTree>& trees) {
  const bool in_flight = std::exchange(state_, State::idle) == State::draft_in_flight;
  DraftChoice choice;
  // The choice counts as long as one of the sequences that `begin` considered still decodes.
  for_each_remaining(sequences, considered_sequences_,
                     [&](size_t, size_t) { choice.made_by_last_step = true; });
  if (!choice.made_by_last_step) return choice;
  drafting_.learn_from_prediction();
  const auto has_room = [&](size_t i) { return drafting_.max_guess_tokens(*sequences[i]) > 0; };
  for_each_remaining(sequences, deferred_sequences_, [&](size_t i, size_t) {
    if (has_room(i)) choice.to_draft.push_back(i);
  });
  std::vector<int64_t> tree_indices;  // in the draft, of the sequences choice.already_drafted
  for_each_remaining(sequences, drafted_sequences_, [&](size_t i, size_t tree) {
    if (!has_room(i)) return;
    choice.already_drafted.push_back(i);
    tree_indices.push_back(static_cast<int64_t>(tree));
  });
  if (!in_flight || choice.already_drafted.empty()) return choice;
  draft_clock_.mark_wait();
  double seconds = 0;
  {
    model::Timer timer(stats_.drafter_seconds);
    const model::DraftRunner::TimedTrees grown = drafting_.draft_runner().wait_for_trees();
    seconds = draft_clock_.step_seconds(grown.seconds);
    for (size_t k = 0; k < tree_indices.size(); ++k) {
      const size_t i = choice.already_drafted[k];
      add_nodes(grown.trees, tree_indices[k], drafting_.max_depth(*sequences[i]), trees[i]);
    }
  }
  drafting_.observe_draft(std::ssize(drafted_sequences_), seconds,
                          representative_ && drafting_.draft_runner().warm());
  draft_clock_.mark_trees_read();
  return choice;
}

}  // namespace clover::infer
