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

/// What a draft that grows behind a pass adds to a step.  The GPU grows trees while the CPU verifies the pass
/// before, and waits while the CPU reads the trees and launches the pass over them.
class DraftClock {
 public:
  /// The CPU begins to choose and launch the draft.
  void mark_launch();
  /// The CPU has the tokens of the pass before it: from now on the GPU drafts.
  void mark_pass_done() { pass_done_ = Clock::now(); }
  /// The CPU is about to wait for the trees.
  void mark_wait() { waited_ = Clock::now(); }
  /// The CPU has read the trees.
  void mark_trees_read() { trees_read_ = Clock::now(); }

  /// Seconds of a step for the draft that is waited for, which took the GPU `gpu_seconds`.
  double step_seconds(double gpu_seconds) const;

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point pass_done_{}, waited_{};
  /// When the CPU had last read trees; empty once a launch has used it.
  std::optional<Clock::time_point> trees_read_;
  /// Seconds from reading the last trees to launching this draft; 0 if none were read.
  double launch_delay_ = 0;
};

/// What a GPU begins of the next step before the CPU knows the tokens of this one
/// (docs/decisions/0006-cuda-graphs.md).
///
///   idle             nothing runs ahead, but `begin` may have chosen whom to draft for (deferred_)
///   draft_in_flight  the next trees grow behind this step's pass, whose accepted rows the GPU finds and
///                    compacts in the cache by itself (kernels::verify_trees)
///   pass_in_flight   nothing is guessed, so the next pass runs already, over this pass's tokens
///
/// `begin` goes from idle to one of the other states or stays idle; at the next step `take_draft` or
/// `take_pass` returns to idle.
///
/// Inputs: the pass under way (its rows, and their tokens and features on the device), the drafter's pending
/// rows (LiveSequence::add_pending), free pages of the cache and, for a pass, the next prefill chunks.
///
/// Nothing begins where the CPU must know the tokens first: it samples them itself (CPU, lossy verification),
/// the drafter writes its guesses to the cache (EAGLE), or it would read more rows than graphs are captured
/// for.  A pass does not begin either where this one has guesses or ends a prompt, guesses from the text pay,
/// logits are edited by the text so far, or pages are scarce.
///
/// A sequence that finishes or is preempted invalidates its own tree or row, not those of others.  One whose
/// prompt this pass ends decodes in the next step, without guesses of the heads if `begin` has chosen whom to
/// draft for.  A request that comes while a pass is in flight is prefilled in the step after the next.
class RunAhead {
 public:
  /// All are borrowed; seconds of drafting are added to `stats`.
  RunAhead(Drafting& drafting, PassRunner& runner, Scheduler& schedule, model::KvCache& cache,
           const EngineOptions& options, EngineStats& stats)
      : drafting_(drafting),
        runner_(runner),
        schedule_(schedule),
        cache_(cache),
        options_(options),
        stats_(stats) {}

  /// Launches what can begin behind `pass`, which runs on the GPU: sets its commit state, and returns the
  /// next pass if that runs, null otherwise.
  DecodePass* begin(DecodePass& pass);
  /// The CPU has the tokens of the pass that `begin` was given.
  void pass_done() { clock_.mark_pass_done(); }
  /// The sequences that the draft in flight grows trees for, in their order.
  Sequences drafted() const { return drafted_; }

  /// The next pass, without rows of sequences that are gone: pass_in_flight becomes idle.  None in another
  /// state, or where nothing is left of it.
  std::optional<DecodePass> take_pass(Sequences decoding);

  /// Adds the nodes that the draft in flight has grown to `trees`, bare roots of `sequences`, and says whom
  /// the heads have drafted for: draft_in_flight becomes idle.
  DraftChoice take_draft(Sequences sequences, std::vector<CandidateTree>& trees);

 private:
  enum class State { idle, draft_in_flight, pass_in_flight };

  void reset();
  void begin_draft(DecodePass& pass, std::span<const size_t> chosen,
                   std::span<const int64_t> context_lengths);
  DecodePass* begin_pass(DecodePass& pass);
  bool pass_can_begin(const DecodePass& pass);
  model::UnverifiedTrees unverified(const DecodePass& pass) const;
  int64_t most_accepted(const CandidateTree& tree) const;

  Drafting& drafting_;
  PassRunner& runner_;
  Scheduler& schedule_;
  model::KvCache& cache_;
  const EngineOptions& options_;
  EngineStats& stats_;

  State state_ = State::idle;
  // Of `begin`, until the next step:
  std::vector<LiveSequence*> considered_;  // those that `begin` chose among
  std::vector<LiveSequence*> deferred_;    // chosen, and drafted for in the next step
  std::vector<LiveSequence*> drafted_;     // tree i of the draft in flight is that of sequence i here
  bool representative_ = true;             // the draft's time is a fair sample for CostModel: no sequence
                                           // had pending rows of more than one pass
  DraftClock clock_;
  std::optional<DecodePass> next_;  // the pass in flight
};

}  // namespace clover::infer
