#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "infer/candidate_tree.h"
#include "infer/cost_model.h"
#include "infer/engine_options.h"
#include "infer/live_sequence.h"
#include "model/draft_graphs.h"
#include "model/drafter.h"
#include "model/kv_cache.h"
#include "model/pass_graphs.h"
#include "model/target.h"

namespace clover::infer {

/// The widest tree any policy grows, in rows.
constexpr int64_t most_tree_rows = 64;

/// What is guessed for the sequences of a batch: by the heads and from the text so far, under `auto` as much
/// as pays for its rows on this machine.
class Drafting {
 public:
  using Sequences = std::span<const std::unique_ptr<LiveSequence>>;

  /// `drafter` may be null.  All are borrowed; seconds of drafting are added to `stats`.
  Drafting(const model::Target& target, model::Drafter* drafter, model::KvCache& cache,
           model::PassGraphs& passes, model::Recorder& recorder, const EngineOptions& options,
           EngineStats& stats);

  /// Captured in every pass of the target.
  model::FeatureTaps taps() const { return with_heads_ ? drafter_->features() : model::FeatureTaps{}; }

  /// One tree a sequence, its root alone where no guess pays.
  std::vector<CandidateTree> propose(Sequences sequences);

  /// Tokens [begin, end) of what a joining sequence reads passed through the target; features [end - begin
  /// or more, ..].  end is below the last token's index, whose successor is not known yet.
  void read(LiveSequence& live, const model::Features& features, int64_t begin, int64_t end);

  /// Rows of a pass whose tokens were kept, and the token after each.
  struct Seen {
    LiveSequence* live;
    std::vector<int64_t> rows, next_ids;
  };
  void remember(const model::Features& features, std::span<Seen> seen);

  /// The answer is complete: later ones may go on alike.
  void finished(const LiveSequence& live);

  /// A pass over these trees, before any of their nodes is kept, took `seconds`.
  void observe_pass(Sequences sequences, std::span<const CandidateTree> trees, double seconds);
  /// Of `tree` these nodes were accepted.
  void observe_tree(const CandidateTree& tree, std::span<const int32_t> accepted);

 private:
  bool automatic() const { return options_.growth.policy == Policy::automatic; }
  void calibrate(std::span<const int64_t> contexts, Sequences sequences);
  void calibrate_rows();
  void calibrate_attention(int32_t sequence);
  double timed_pass(int32_t sequence, int64_t rows);
  std::vector<int64_t> contexts(Sequences sequences) const;
  std::vector<size_t> whom_to_draft_for(Sequences sequences, std::span<const int64_t> contexts);
  void draft(Sequences sequences, std::span<const size_t> asked, std::span<const int64_t> contexts,
             std::vector<CandidateTree>& trees);
  model::SeenRows take_unseen(Sequences sequences, std::span<const size_t> asked);
  void note_rest(Sequences sequences, std::span<const size_t> asked, std::span<const CandidateTree> trees);
  bool graft_suffixes(Sequences sequences, std::vector<CandidateTree>& trees);
  int64_t longest_guess(const LiveSequence& live) const;
  GrowthLimit limit(const LiveSequence& live) const;

  const model::Target& target_;
  model::Drafter* drafter_;
  model::KvCache& cache_;
  model::PassGraphs& passes_;
  EngineOptions options_;
  EngineStats& stats_;
  bool with_heads_;
  std::optional<model::DraftGraphs> draft_;  // where there are heads
  CostModel costs_;
  AnswerMatcher answers_;
  bool calibrated_ = false;
  int64_t longest_calibrated_ = 128;  // tokens of context; attention to fewer is lost in the noise of a clock
};

}  // namespace clover::infer
