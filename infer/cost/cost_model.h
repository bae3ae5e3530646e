#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "infer/cost/draft_cost.h"
#include "infer/cost/pass_cost.h"
#include "infer/tree/candidate_tree.h"

namespace clover::infer {

/// What `auto` decides by: seconds of a target pass by its rows and the cached tokens they attend to, seconds
/// of drafting, and how often guesses of a given proposed probability were accepted.  Only speed depends on
/// it, never tokens.  `context_lengths`: the cached tokens of each sequence of the batch.
///
/// A step calls worth_drafting; if it is true, least_joint and draft_levels before the trees grow and
/// observe_draft after; then trim, observe_pass and observe_tree.  Where the draft of the next step is
/// launched behind the pass under way (RunAhead), a step begins with learn_from_prediction and observe_draft,
/// and worth_drafting, least_joint and draft_levels follow trim.
class CostModel {
 public:
  /// What a target pass costs; Calibration measures it directly.
  PassCost& passes() { return passes_; }
  const PassCost& passes() const { return passes_; }

  /// The pass of a step took `seconds`; rows and attended tokens as in PassCost.
  void observe_pass(int64_t rows, int64_t attended_tokens, double seconds);
  /// Drafting for `sequences` sequences took `seconds` in all (reading the target's features, the heads and
  /// tree growth).  Not `representative` where it also read rows that earlier steps had left, or was the
  /// first of its shape: then it says nothing of other drafts.
  void observe_draft(int64_t sequences, double seconds, bool representative = true);
  /// These nodes of a verified tree were accepted, the root first.
  void observe_tree(const CandidateTree& tree, std::span<const int32_t> accepted_nodes);

  /// Seconds of a draft as deep as the last, interpolated between those that were timed; 0 while none was.
  double draft_seconds(int64_t sequences) const { return drafts_.at(sequences, levels_); }

  /// Expected acceptance of a node of that joint probability: the proposed one, corrected by how often nodes
  /// like it were accepted.
  double calibrated(float proposed_probability, Proposer proposer = Proposer::heads) const;

  /// The joint probability below which a node cannot be worth its row, on the generous side.  Growth leaves
  /// such nodes out (GrowthRule::least_joint), because trim would drop them.
  double least_joint(std::span<const int64_t> context_lengths) const;

  /// Cuts the trees of the whole batch to the nodes that pay.  Nodes of all trees are ranked by expected
  /// acceptance per second that their row adds to the pass, a parent before its children, and as many are
  /// taken as make expected tokens a second largest; none where that gains less than 4 %.  While the cost of
  /// a row is unknown (fewer than two row counts observed) the best 4 nodes a tree stay.  After 32 steps with
  /// guesses, 256 where they clearly pay, one step goes without, to time its pass again.  `drafted`: for how
  /// many sequences the heads have drafted; what they gain over the other nodes is kept for worth_drafting.
  void trim(std::vector<CandidateTree>& trees, std::span<const int64_t> context_lengths, int64_t drafted);

  /// Whether trim would keep any node of these trees, none of which the heads have drafted.  If not, the step
  /// counts as one without guesses.
  bool pays(const std::vector<CandidateTree>& trees, std::span<const int64_t> context_lengths);

  /// Whether drafting is expected to pay for a batch at all: by what recent trims predicted for batches of
  /// about that size or, before any, whether rows are cheap enough for excellent heads to pay.  Where
  /// drafting does not pay, the last two steps of every 64 still draft, as a probe.  Each probe that does not
  /// pay doubles the interval, up to 1024 steps.  Where not even excellent heads would pay, the interval is
  /// at least 512.
  bool worth_drafting(std::span<const int64_t> context_lengths);

  /// How many levels, 1 to `max_levels`, the next draft grows for so many sequences of a batch: as many as
  /// pay for their time (DraftCost::next_levels).
  int64_t draft_levels(std::span<const int64_t> context_lengths, int64_t drafted, int64_t max_levels);

  /// Learns from what trim predicted of the last step and what was observed of it; does nothing while that
  /// step's trees have not been verified.  worth_drafting calls it too.
  void learn_from_prediction();

 private:
  static constexpr int bins = 20;
  struct Bin {
    double hits = 0;
    double expected = 0;  // sum of the proposed probabilities
    void add(bool hit, double probability);
    /// hits / expected, as if `assumed` had been observed for a little probability before.
    double correction(double assumed) const;
  };
  struct ProposerRecord {
    Bin all;
    Bin by_probability[bins];
  };
  /// What drafting gains for all batches of the same number of sequences, as running means.
  struct Advantage {
    double predicted_ratio = 0;          // tokens a second with drafting / without, as trims predicted
    double trims = 0;                    // that predicted_ratio is the mean of
    double observed_over_predicted = 1;  // ratio of tokens a second
    double sequence_steps = 0;           // steps of single sequences that it is the mean of
    double corrected_ratio() const;      // the predicted one, by what was observed
  };
  // What trim expected of a step, and what was observed.
  struct Prediction {
    int64_t sequences = 0;  // 0: there is none
    double tokens = 0, seconds = 0;
    double tokens_observed = 0, seconds_observed = 0;
    bool pass_timed = false;  // else the seconds of its pass are not known
  };
  std::optional<double> known_advantage(int64_t sequences) const;
  /// An upper bound: tokens a second with excellent heads / without heads.
  double optimistic_speedup(std::span<const int64_t> context_lengths) const;
  bool plain_is_due() const;
  bool predicted_to_pay(int64_t sequences) const;
  void note_advantage(int64_t sequences, double ratio);
  void note_yield(const std::vector<CandidateTree>& kept, int64_t drafted);
  DraftCost::Step step_of(std::span<const int64_t> context_lengths, int64_t drafted) const;

  PassCost passes_;
  DraftCost drafts_;
  int64_t levels_ = 1;                       // of the last draft
  ProposerRecord proposers_[2];              // by Proposer
  std::map<int64_t, Advantage> advantages_;  // by sequences
  Prediction prediction_;                    // of the present step
  int64_t steps_since_plain_ = 0;            // steps with guesses since one without
  double gain_ = 1;                // running mean of tokens a second with guesses / without, as predicted
  int64_t steps_since_probe_ = 0;  // steps since drafting paid or the last probe
  int64_t probe_interval_ = 64;    // steps from one probe to the next
};

}  // namespace clover::infer
