#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "infer/cost/calibration.h"
#include "infer/cost/cost_model.h"
#include "infer/engine/engine_options.h"
#include "infer/engine/live_sequence.h"
#include "infer/tree/candidate_tree.h"
#include "model/cache/kv_cache.h"
#include "model/drafters/drafter.h"
#include "model/graphs/draft_graphs.h"
#include "model/graphs/pass_graphs.h"
#include "model/target/target.h"

namespace clover::infer {

/// The widest tree any policy grows, in rows.
constexpr int64_t most_tree_rows = 64;

/// What is guessed for the sequences of a batch: by the heads and from the text so far, under `auto` as much
/// as pays for its rows on this machine.
class Drafting {
 public:
  using Sequences = std::span<LiveSequence* const>;

  /// `drafter` may be null.  All are borrowed; seconds of drafting are added to `stats`.
  Drafting(const model::Target& target, model::Drafter* drafter, model::KvCache& cache,
           model::PassGraphs& passes, model::Recorder& recorder, const EngineOptions& options,
           EngineStats& stats);

  /// Captured in every pass of the target.
  model::FeatureTaps taps() const { return with_heads_ ? drafter_->features() : model::FeatureTaps{}; }

  /// One tree a sequence, its root alone where no guess pays.
  std::vector<CandidateTree> propose(Sequences sequences);

  /// What the heads do at the next step.
  enum class Next {
    drafts,   // their drafts have begun
    nothing,  // they are asked for no draft
    unknown,  // that is decided then
  };
  /// On a GPU, behind a pass whose rows are `trees`' and that the CPU has not waited for: begins the drafts
  /// of the next step, which sees what the target accepts there as the GPU finds it out.  `tokens` and
  /// `features`: of the pass's rows, on the device.  Where it does, keys and values have moved too
  /// (KvCache::commit).
  Next begin_next(Sequences sequences, std::span<const CandidateTree> trees, const at::Tensor& tokens,
                  const model::Features& features);
  /// Whether the texts as they are now lead to guesses that pay.
  bool guesses_from_text(Sequences sequences);
  /// The tokens of that pass are there: the GPU drafts, and the CPU has something else to do.
  void pass_is_over() { begun_.pass_over = Clock::now(); }

  /// These chunks passed through the target, whose rows stand one behind the other in `features` from row
  /// `first`.
  void read(std::span<const PromptChunk> chunks, const model::Features& features, int64_t first);

  /// Rows of a pass whose tokens were kept, and the token after each.
  struct Seen {
    LiveSequence* live;
    std::vector<int64_t> rows, next_ids;
  };
  void remember(const model::Features& features, std::span<Seen> seen);

  /// The answer is complete: later ones may go on alike.
  void finished(const LiveSequence& live);

  /// A pass over these trees, behind so many cached tokens each, took `seconds`.
  void observe_pass(std::span<const CandidateTree> trees, std::span<const int64_t> contexts, double seconds);
  /// Of `tree` these nodes were accepted.
  void observe_tree(const CandidateTree& tree, std::span<const int32_t> accepted);
  /// Leaves what passes cost to later runs (EngineOptions::costs), where it was asked for.
  void keep_costs() const;

 private:
  bool automatic() const { return options_.growth.policy == Policy::automatic; }
  bool last_only() const { return drafter_->kv_layers() == 0; }  // the drafter looks back at nothing
  void calibrate(Sequences sequences);
  std::vector<int64_t> contexts(Sequences sequences) const;
  std::vector<size_t> whom_to_draft_for(Sequences sequences, std::span<const int64_t> contexts, int64_t sure);
  std::vector<size_t> wanted(Sequences sequences) const;
  GrowthRule rule_for(std::span<const int64_t> contexts) const;
  std::vector<size_t> take_begun(Sequences sequences, std::vector<CandidateTree>& trees);
  model::JudgedRows judged_rows(Sequences sequences, std::span<const CandidateTree> trees) const;
  void draft(Sequences sequences, std::span<const size_t> asked, std::span<const int64_t> contexts,
             std::vector<CandidateTree>& trees);
  model::SeenRows take_unseen(Sequences sequences, std::span<const size_t> asked);
  void note_rest(Sequences sequences, std::span<const size_t> asked, std::span<const CandidateTree> trees);
  bool graft_suffixes(Sequences sequences, std::vector<CandidateTree>& trees);
  int64_t most_seen(const CandidateTree& tree) const;
  int64_t longest_guess(const LiveSequence& live, int64_t sure = 0) const;
  GrowthLimit limit(const LiveSequence& live, int64_t sure = 0) const;

  const model::Target& target_;
  model::Drafter* drafter_;
  model::KvCache& cache_;
  const model::Recorder& recorder_;
  EngineOptions options_;
  EngineStats& stats_;
  bool with_heads_;
  Calibration calibration_;
  std::optional<model::DraftGraphs> draft_;  // where there are heads
  CostModel costs_;
  AnswerMatcher answers_;
  using Clock = std::chrono::steady_clock;
  /// The drafts begun for the next step.
  struct Begun {
    int64_t sequences = 0;
    bool typical = false;  // take as long as most do
    double placing = 0;    // seconds of the CPU from the last trees to the pass over them
    Clock::time_point pass_over{};
    std::optional<double> hidden{};  // seconds of them during which the CPU had no use for the GPU
  };
  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  void use_gpu();
  Begun begun_;
  std::optional<Clock::time_point> trees_there_;  // that the last `begun_` grew
};

}  // namespace clover::infer
