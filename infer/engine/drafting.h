#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "infer/cost/calibration.h"
#include "infer/cost/cost_model.h"
#include "infer/engine/engine_options.h"
#include "infer/engine/live_sequence.h"
#include "infer/tree/candidate_tree.h"
#include "infer/tree/grow.h"
#include "infer/tree/suffix_matcher.h"
#include "model/cache/kv_cache.h"
#include "model/drafters/drafter.h"
#include "model/graphs/captured_sizes.h"
#include "model/graphs/draft_runner.h"
#include "model/graphs/graph_runner.h"
#include "model/graphs/pass_graphs.h"
#include "model/target/target.h"

namespace clover::infer {

/// Rows of a tree at most: as many as a captured pass holds.
constexpr int64_t most_tree_rows = model::most_captured_rows;
/// Rows of all trees of a batch at most, because their logits exist at once.
constexpr int64_t most_batch_rows = 1024;
/// Rows that each tree may have in a batch of any size, even if that makes more than most_batch_rows.
constexpr int64_t least_tree_rows = 64;

/// Sequences of a batch, by index, that the heads draft for in a step; one list at least is empty.
struct DraftChoice {
  // The last step chose them already (RunAhead); otherwise the present step chooses.
  bool made_by_last_step = false;
  std::vector<size_t> grown;     // their trees have grown already
  std::vector<size_t> to_draft;  // they are chosen and their drafts have not begun
};

/// Proposes the guesses for the sequences of a batch: those of the heads and those from the text so far.
/// Under `auto` it proposes as many as pay for their rows on this machine.  What a GPU drafts before the CPU
/// has verified a pass is RunAhead's.
class Drafting {
 public:
  /// `drafter` may be null.  All are borrowed; seconds of drafting are added to `stats`.
  Drafting(const model::Target& target, model::Drafter* drafter, model::KvCache& cache,
           model::PassGraphs& passes, model::GraphRunner& graph_runner, const EngineOptions& options,
           EngineStats& stats);

  /// Features that every pass of the target captures.
  model::FeatureTaps taps() const { return uses_heads() ? drafter_->taps() : model::FeatureTaps{}; }

  /// Whether there is a drafter and the policy asks it.
  bool uses_heads() const { return uses_heads_; }
  /// Whether the drafter has no layers of its own in the cache, so that it reads the last accepted row alone.
  bool reads_last_row_only() const { return drafter_->kv_layers() == 0; }
  /// Whether a draft can begin before a pass is verified: not where it needs slots behind rows that are not
  /// accepted yet.
  bool can_draft_ahead() const { return !drafter_->writes_guesses(); }

  /// Cached tokens of each sequence.
  std::vector<int64_t> context_lengths(Sequences sequences) const;
  /// Which sequences the heads draft for in the next step.  `certain_tokens`: tokens that each is sure to
  /// emit before the guesses.  Counts one step of each sequence's back-off.
  std::vector<size_t> choose(Sequences sequences, std::span<const int64_t> context_lengths,
                             int64_t certain_tokens);
  /// How many tokens, behind the `certain_tokens` it is sure to emit, guesses for the sequence may reach.
  int64_t max_guess_tokens(const LiveSequence& live, int64_t certain_tokens = 0) const;
  /// How deep a tree of the sequence may be.
  int64_t max_depth(const LiveSequence& live, int64_t certain_tokens = 0) const;
  /// What the trees of these sequences may grow.
  std::vector<GrowthLimit> limits(Sequences sequences, std::span<const size_t> chosen,
                                  int64_t certain_tokens = 0) const;
  /// The rule of the next draft, of a tree for each of `limits`, in a batch of these cached tokens.
  GrowthRule rule_for(std::span<const int64_t> context_lengths, std::span<const GrowthLimit> limits);
  model::DraftRunner& runner() { return *runner_; }  // where uses_heads()

  /// Guesses for each sequence, whose trees are bare roots but for those that `choice` says have grown: by
  /// the heads, from the text, and under `auto` trimmed to what pays.
  void propose(Sequences sequences, const DraftChoice& choice, std::vector<CandidateTree>& trees);
  /// Whether guesses from the texts as they are now pay: under `auto` by their cost, else whether there are
  /// any.  A step for which it says no goes without guesses (CostModel::pays).
  bool text_guesses_pay(Sequences sequences);

  /// The drafter's own layers read the chunks of a pass, whose rows begin at row `first` of `features`.
  void prefill(std::span<const PrefillChunk> chunks, const model::Features& features, int64_t first);

  /// Accepted rows of a pass, and the token after each.
  struct AcceptedRows {
    LiveSequence* live;
    std::vector<int64_t> rows, next_ids;
  };
  /// Keeps them for the next draft (LiveSequence::add_pending).  `drafted`: sequences, in the order of
  /// `accepted`, whose draft in flight reads them already.
  void keep_accepted(const model::Features& features, std::span<AcceptedRows> accepted, Sequences drafted);

  /// The answer is complete: guesses for others may copy from it.
  void note_finished(const LiveSequence& live);

  // What `auto` learns from (CostModel); nothing under other policies.
  /// A pass over these trees, behind so many cached tokens each, took `seconds`.
  void observe_pass(std::span<const CandidateTree> trees, std::span<const int64_t> context_lengths,
                    double seconds);
  /// Of `tree` these nodes were accepted.
  void observe_tree(const CandidateTree& tree, std::span<const int32_t> accepted);
  /// As CostModel::observe_draft.  Under every policy the statistics count a representative draft.
  void observe_draft(int64_t sequences, double seconds, bool representative);
  /// As CostModel::learn_from_prediction, which a step calls whose draft was launched by the last one.
  void learn_from_prediction();
  /// Writes what passes cost, for later runs (EngineOptions::costs).
  void keep_costs() const;

 private:
  bool automatic() const { return growth_policy(options_.growth.policy).uses_cost_model; }
  void calibrate(Sequences sequences);  // times passes that no run has timed yet (Calibration)
  int64_t max_suffix_guesses() const;
  int64_t budget_a_tree(Sequences sequences) const;  // for guesses of the heads
  void draft(Sequences sequences, std::span<const size_t> chosen, std::span<const int64_t> context_lengths,
             std::vector<CandidateTree>& trees);
  void free_guesses(Sequences sequences, std::span<const size_t> chosen);
  model::DraftInput take_input(Sequences sequences, std::span<const size_t> chosen);
  void note_backoff(Sequences sequences, std::span<const size_t> drafted,
                    std::span<const CandidateTree> trees);
  bool graft_suffixes(Sequences sequences, std::vector<CandidateTree>& trees);

  const model::Target& target_;
  model::Drafter* drafter_;
  model::KvCache& cache_;
  const model::GraphRunner& graph_runner_;
  EngineOptions options_;
  EngineStats& stats_;
  bool uses_heads_;
  Calibration calibration_;
  std::optional<model::DraftRunner> runner_;  // where uses_heads_
  CostModel costs_;
  AnswerMatcher answers_;
};

}  // namespace clover::infer
