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

/// Max rows of one tree: as many as the largest captured pass holds.
constexpr int64_t max_tree_rows = model::max_captured_rows;
/// Max rows of all trees of a batch together, because their logits are in memory at the same time.
constexpr int64_t max_batch_rows = 1024;
/// Rows that each tree may have even if all trees together then exceed max_batch_rows.
constexpr int64_t min_tree_rows = 64;

/// The sequences that the previous step chose for the heads to draft for in this step (RunAhead), as indices
/// into the batch.  At most one of the lists has elements.
struct DraftChoice {
  bool made_by_last_step = false;       // else the lists are empty and this step chooses
  std::vector<size_t> already_drafted;  // their trees have grown
  std::vector<size_t> to_draft;         // their drafts have not begun
};

/// Proposes guesses for the sequences of a batch: those of the heads, and those copied from the text.  Under
/// `auto` it proposes those that are worth the time of their rows on this machine.  Drafts that a GPU begins
/// before the CPU has verified a pass go on in run_ahead.h.
class Drafting {
 public:
  /// `drafter` may be null.  All but `options` are borrowed; seconds of drafting are added to `stats`.
  Drafting(const model::Target& target, model::Drafter* drafter, model::KvCache& cache,
           model::PassGraphs& passes, model::GraphRunner& graph_runner, const EngineOptions& options,
           EngineStats& stats);

  /// The features of the target that each pass has to return for the drafter.
  model::FeatureTaps taps() const { return uses_heads() ? drafter_->taps() : model::FeatureTaps{}; }

  /// Whether there is a drafter and the growth policy uses it.
  bool uses_heads() const { return uses_heads_; }
  /// Whether the drafter has no layers in the KV cache: then it reads nothing but the last accepted row.
  bool reads_last_row_only() const { return drafter_->kv_layers() == 0; }
  /// Whether a draft can begin before the pass is verified.  A drafter that writes its guesses to the KV
  /// cache cannot: their slots follow the accepted rows, whose number is not known yet.
  bool can_draft_ahead() const { return !drafter_->writes_guesses(); }

  /// The number of cached tokens of each sequence.
  std::vector<int64_t> context_lengths(Sequences sequences) const;
  /// Chooses the sequences that the heads draft for in the next draft; returns their indices.
  /// `certain_tokens`: how many tokens each sequence emits in any case before the guesses: 1 for a draft that
  /// begins before the current pass is verified, else 0.  Counts one step of each sequence's back-off.
  std::vector<size_t> choose_sequences(Sequences sequences, std::span<const int64_t> context_lengths,
                                       int64_t certain_tokens);
  /// How many tokens after the `certain_tokens` the sequence has room to guess, by max_tokens and the
  /// context.
  int64_t max_guess_tokens(const LiveSequence& live, int64_t certain_tokens = 0) const;
  /// The max depth of the sequence's tree: also limited by the growth rule and the drafter.
  int64_t max_depth(const LiveSequence& live, int64_t certain_tokens = 0) const;
  /// The limits of the trees of the `chosen` sequences.
  std::vector<GrowthLimit> growth_limits(Sequences sequences, std::span<const size_t> chosen,
                                         int64_t certain_tokens = 0) const;
  /// The growth rule of the next draft.  `context_lengths`: of the whole batch; `limits`: of each tree that
  /// grows.
  GrowthRule growth_rule_for(std::span<const int64_t> context_lengths, std::span<const GrowthLimit> limits);
  model::DraftRunner& draft_runner() { return *draft_runner_; }  // requires uses_heads()

  /// Adds guesses to `trees`, one tree for each sequence: by the heads, then from the text; under `auto` it
  /// then removes nodes that do not pay.  On entry the trees of choice.already_drafted have their nodes, all
  /// others only a root.
  void propose(Sequences sequences, const DraftChoice& choice, std::vector<CandidateTree>& trees);
  /// Whether guesses copied from the texts would pay in the next step: under `auto` by their cost, else
  /// whether there are any.  The caller must run that step without guesses if not (CostModel::pays).
  bool text_guesses_pay(Sequences sequences);

  /// Lets the drafter's own layers read the prefill chunks of a pass, whose rows in `features` follow each
  /// other from row `first` on.
  void prefill(std::span<const PrefillChunk> chunks, const model::Features& features, int64_t first);

  /// The accepted rows of one sequence, as row indices of the pass's features, and the token after each.
  struct AcceptedRows {
    LiveSequence* live;
    std::vector<int64_t> rows, next_ids;
  };
  /// Stores the accepted rows, copied from `features`, for the next draft (LiveSequence::add_pending), except
  /// those of the sequences `drafted`, whose draft in flight reads them already.  `drafted` is in the order
  /// of `accepted`.  Changes `accepted`.
  void add_pending_rows(const model::Features& features, std::span<AcceptedRows> accepted, Sequences drafted);

  /// Lets guesses for other sequences copy from a complete answer.
  void add_finished_answer(const LiveSequence& live);

  // What `auto` learns from (CostModel).  Other policies ignore it.
  /// A pass over `trees` took `seconds`; `context_lengths`: cached tokens before each tree.
  void observe_pass(std::span<const CandidateTree> trees, std::span<const int64_t> context_lengths,
                    double seconds);
  /// The `accepted` nodes of a verified `tree`, the root first.
  void observe_tree(const CandidateTree& tree, std::span<const int32_t> accepted);
  /// As CostModel::observe_draft.  Under every policy EngineStats::drafts counts representative drafts.
  void observe_draft(int64_t sequences, double seconds, bool representative);
  /// As CostModel::learn_from_prediction; for a step whose choice the previous step made.
  void learn_from_prediction();
  /// Writes the measured seconds of passes to EngineOptions::costs, for later runs.
  void save_costs() const;

 private:
  bool uses_cost_model() const { return growth_policy(options_.growth.policy).uses_cost_model; }
  void calibrate(Sequences sequences);                 // times passes of sizes not timed before (Calibration)
  int64_t max_suffix_guesses() const;                  // per tree
  int64_t budget_per_tree(Sequences sequences) const;  // max nodes by the heads, root excluded
  void draft(Sequences sequences, std::span<const size_t> chosen, std::span<const int64_t> context_lengths,
             std::vector<CandidateTree>& trees);
  void free_guess_pages(Sequences sequences, std::span<const size_t> chosen);
  model::DraftInput take_input(Sequences sequences, std::span<const size_t> chosen);
  void update_backoff(Sequences sequences, std::span<const size_t> drafted,
                      std::span<const CandidateTree> trees);
  bool add_text_guesses(Sequences sequences, std::vector<CandidateTree>& trees);

  const model::Target& target_;
  model::Drafter* drafter_;
  model::KvCache& cache_;
  const model::GraphRunner& graph_runner_;
  EngineOptions options_;
  EngineStats& stats_;
  bool uses_heads_;
  Calibration calibration_;
  std::optional<model::DraftRunner> draft_runner_;  // set if uses_heads_
  CostModel cost_model_;
  AnswerMatcher answer_matcher_;
};

}  // namespace clover::infer
