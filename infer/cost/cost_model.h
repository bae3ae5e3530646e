#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "infer/cost/cost_curve.h"
#include "infer/cost/pass_cost.h"
#include "infer/tree/candidate_tree.h"

namespace clover::infer {

/// What `auto` knows: seconds of a target pass by its rows and what they look back at, seconds of drafting,
/// and how often guesses of a given drafter probability were accepted.  Only speed depends on it, never
/// tokens. `contexts`: the cached tokens of each sequence of the batch.
///
/// A step: worth_drafting, then (if so) grow and observe_draft; trim; the pass; observe_pass and
/// observe_tree.  Where drafts begin behind a pass that is still under way: settle_promise, observe_draft,
/// trim, worth_drafting for the next step, the pass, and so on.
class CostModel {
 public:
  /// What a target pass costs; calibration tells it directly.
  PassCost& passes() { return passes_; }
  const PassCost& passes() const { return passes_; }

  /// The pass of a step, of `rows` rows over `positions` (see PassCost), took `seconds`.
  void observe_pass(int64_t rows, int64_t positions, double seconds);
  /// Drafting for `sequences` sequences took `seconds` in all (prime, heads and growth).  Not `typical`: it
  /// also read what steps that did not draft for all of them had skipped, or did something for the first
  /// time, and says nothing of the next.
  void observe_draft(int64_t sequences, double seconds, bool typical = true);
  /// Which nodes of a verified tree were accepted, the root first: the target's own path says it of every
  /// node.
  void observe_tree(const CandidateTree& tree, std::span<const int32_t> accepted_nodes);

  /// Interpolated between what was measured; 0 while nothing was.
  double draft_seconds(int64_t sequences) const { return drafts_.at(sequences); }

  /// Expected acceptance of a node of that joint probability: the proposer's own word, corrected by what
  /// became of nodes like it.
  double calibrated(float probability_by_drafter, Proposer proposer = Proposer::heads) const;

  /// The acceptance below which a node is not worth its row, on the generous side: what grow need not look
  /// at (GrowthRule::least_joint), because trim would drop it.
  double least_worth(std::span<const int64_t> contexts) const;

  /// Cuts the trees of the whole batch to the nodes that pay: nodes are taken in order of expected acceptance
  /// for the seconds of their row over all trees, parents first, as many as make expected tokens a second
  /// largest; none where that gains less than 4 %.
  /// While the cost of a row is unknown (fewer than two row counts observed) the best 4 nodes a tree stay.
  /// After 32 steps with guesses, 256 where they clearly pay, one goes without, to see what that costs by
  /// now. `drafted`: for how many sequences the heads were asked; what they gained over the other nodes is
  /// remembered for worth_drafting.
  void trim(std::vector<CandidateTree>& trees, std::span<const int64_t> contexts, int64_t drafted);

  /// Whether drafting is expected to pay for a batch at all, from what recent trims promised for batches of
  /// about that size; before that, whether rows are cheap enough for excellent heads to pay.
  /// Where it says no, two steps of every 64 still say yes, to look again; of every 128, 256 .. 1024 when
  /// that was for nothing, and from 512 on where rows or drafts are too dear for any heads.
  bool worth_drafting(std::span<const int64_t> contexts);

  /// The last step is over: what its trim promised is compared with what came of it.  Nothing where its pass
  /// is still to come; worth_drafting does the same.
  void settle_promise();

 private:
  static constexpr int bins = 20;
  struct Bin {
    double hits = 0;
    double expected = 0;  // sum of the drafter's probabilities
    void add(bool hit, double probability);
    /// hits / expected, as if a little of it had been seen at `assumed` already.
    double correction(double assumed) const;
  };
  struct Calibration {
    Bin all;
    Bin by_probability[bins];
  };
  struct Advantage {
    double ratio = 0;  // running mean of tokens a second when drafting / when not, as trims promised
    double weight = 0;
    double kept = 1;  // running mean of how much of the promised tokens a second came true
    double kept_weight = 0;
    double ratio_kept() const;
  };
  // What trim expected of a step, and what became of it.
  struct Promise {
    int64_t sequences = 0;  // 0: none was made
    double tokens = 0, seconds = 0;
    double tokens_seen = 0, seconds_seen = 0;
    bool pass_seen = false;  // else its seconds are not known
  };
  std::optional<double> known_advantage(int64_t sequences) const;
  /// Tokens a second with excellent heads over those without.
  double best_hope(std::span<const int64_t> contexts) const;
  bool plain_is_due() const;
  bool promising(int64_t sequences) const;
  void note_advantage(int64_t sequences, double ratio);

  PassCost passes_;
  CostCurve drafts_;                         // by sequences
  Calibration calibration_[2];               // by proposer
  std::map<int64_t, Advantage> advantages_;  // by sequences
  Promise promise_;                          // of the step that is under way
  int64_t guessing_ = 0;                     // steps with guesses since one without
  double gain_ = 1;                          // running mean of what trims promised over no guesses
  int64_t skipped_ = 0;                      // steps since drafting last paid or was last looked at
  int64_t period_ = 64;                      // steps from one look to the next
};

}  // namespace clover::infer
