#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "infer/engine/decode_pass.h"
#include "infer/engine/drafting.h"
#include "infer/engine/engine_options.h"
#include "infer/engine/live_sequence.h"
#include "infer/engine/scheduler.h"
#include "infer/tree/candidate_tree.h"
#include "model/cache/kv_cache.h"

namespace clover::infer {

/// Measures how many seconds a draft adds to its step when the GPU begins it right after a pass.  The GPU
/// grows the trees while the CPU verifies that pass.  Then the GPU waits while the CPU reads the trees and
/// launches the pass over them.
class DraftClock {
 public:
  /// The CPU begins to choose and launch the draft.
  void mark_launch();
  /// The CPU has the tokens of the pass before the draft: the GPU begins the draft at about this time.
  void mark_pass_done() { pass_done_ = Clock::now(); }
  /// The CPU is about to wait for the trees.
  void mark_wait() { wait_begun_ = Clock::now(); }
  /// The CPU has read the trees.
  void mark_trees_read() { trees_read_ = Clock::now(); }

  /// The seconds that the draft adds to its step, given that it took the GPU `gpu_seconds`.
  double step_seconds(double gpu_seconds) const;

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point pass_done_{}, wait_begun_{};
  /// When the CPU had read the previous draft's trees; mark_launch clears it.
  std::optional<Clock::time_point> trees_read_;
  /// Seconds from reading the previous draft's trees to launching this draft; 0 if there was no previous one.
  double launch_delay_ = 0;
};

/// Begins work of the next step on a GPU before the CPU knows the tokens of this step
/// (docs/decisions/0006-cuda-graphs.md).  It is in one of three states:
///
///   idle             nothing runs ahead
///   draft_in_flight  the GPU drafts for the next step.  For this it finds the accepted rows of this step's
///                    pass itself and compacts them in the KV cache (kernels::verify_trees).
///   pass_in_flight   nothing is drafted, and the GPU runs the next pass over the tokens of this one
///
/// `begin` goes from idle to one of the other states or stays idle.  In the next step `take_draft` or
/// `take_pass` returns to idle.  `begin` may also choose the sequences to draft for and leave the draft to
/// the next step (deferred_sequences_).
///
/// Nothing begins where
///   - the CPU knows the tokens first (the target is on a CPU, verification is typical, or answers are
///     recorded)
///   - the drafter writes its guesses to the KV cache (EAGLE)
///   - the draft would read more rows than a CUDA graph holds
/// Besides, a pass does not begin where
///   - the pass under way has guesses, or ends a prompt
///   - guesses copied from the text would pay
///   - logits are edited depending on the text so far
///   - pages are scarce
///
/// If a sequence finishes or is preempted, only its own tree or row is dropped.  A sequence whose prompt ends
/// in this step decodes in the next one; it gets no guesses of the heads there if `begin` has chosen
/// sequences.  A request that arrives while a pass is in flight is prefilled one step later.
class RunAhead {
 public:
  /// All are borrowed; seconds of drafting are added to `stats`.
  RunAhead(Drafting& drafting, PassRunner& runner, Scheduler& scheduler, model::KvCache& cache,
           const EngineOptions& options, EngineStats& stats)
      : drafting_(drafting),
        pass_runner_(runner),
        scheduler_(scheduler),
        cache_(cache),
        options_(options),
        stats_(stats) {}

  /// Launches what can begin after `pass`, which is under way, and sets pass.commit_state accordingly.
  /// Returns the next pass if it has begun, else null.
  DecodePass* begin(DecodePass& pass);
  /// Tells that the CPU has the tokens of the pass given to `begin`.
  void pass_done() { draft_clock_.mark_pass_done(); }
  /// The sequences for which the draft in flight grows trees, in the order of the batch.
  Sequences drafted_sequences() const { return drafted_sequences_; }

  /// Returns the pass in flight, without the rows of sequences that are no longer in `decoding`.  Empty if no
  /// pass is in flight, or if it has no rows left.
  std::optional<DecodePass> take_pass(Sequences decoding);

  /// Waits for the draft in flight, if any, and adds its nodes to `trees`, which hold the roots of
  /// `sequences`.  Returns the sequences that `begin` chose to draft for.
  DraftChoice take_draft(Sequences sequences, std::vector<CandidateTree>& trees);

 private:
  enum class State { idle, draft_in_flight, pass_in_flight };

  void reset();
  void begin_draft(DecodePass& pass, std::span<const size_t> chosen,
                   std::span<const int64_t> context_lengths);
  DecodePass* begin_pass(DecodePass& pass);
  bool pass_can_begin(const DecodePass& pass);
  model::UnverifiedTrees unverified_trees(const DecodePass& pass) const;
  int64_t max_accepted_rows(const CandidateTree& tree) const;

  Drafting& drafting_;
  PassRunner& pass_runner_;
  Scheduler& scheduler_;
  model::KvCache& cache_;
  const EngineOptions& options_;
  EngineStats& stats_;

  State state_ = State::idle;
  // `begin` sets these and the next step reads them:
  std::vector<LiveSequence*> considered_sequences_;  // those that `begin` chose from
  std::vector<LiveSequence*> deferred_sequences_;    // those it chose for a draft that the next step begins
  std::vector<LiveSequence*> drafted_sequences_;     // [T] those it chose for the draft in flight, of T trees
  /// Whether each drafted sequence had pending rows of at most one earlier pass, so that other drafts take as
  /// long (CostModel::observe_draft).
  bool representative_ = true;
  DraftClock draft_clock_;
  std::optional<DecodePass> next_pass_;  // the pass in flight, if any
};

}  // namespace clover::infer
