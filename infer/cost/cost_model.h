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
/// of drafting, and how often guesses of a given drafter probability were accepted.  Only speed depends on
/// it, never tokens.  `contexts`: the cached tokens of each sequence of the batch.
///
/// A step calls worth_drafting, if so draft_levels, grow and observe_draft, then trim, the pass, observe_pass
/// and observe_tree.  Where a draft is launched right behind the previous pass (RunAhead): check_prediction,
/// observe_draft, trim, worth_drafting and draft_levels for the next step, the pass, and so on.
class CostModel {
 public:
  /// What a target pass costs; Calibration measures it directly.
  PassCost& passes() { return passes_; }
  const PassCost& passes() const { return passes_; }

  /// The pass of a step took `seconds`; rows and positions as in PassCost.
  void observe_pass(int64_t rows, int64_t positions, double seconds);
  /// Drafting for `sequences` sequences took `seconds` in all (prime, heads and growth).  Not
  /// `representative` where it also read rows that earlier steps had left, or was the first of its shape:
  /// then it says nothing of other drafts.
  void observe_draft(int64_t sequences, double seconds, bool representative = true);
  /// These nodes of a verified tree were accepted, the root first.
  void observe_tree(const CandidateTree& tree, std::span<const int32_t> accepted_nodes);

  /// Of a draft as deep as the last, interpolated between what was measured; 0 while nothing was.
  double draft_seconds(int64_t sequences) const { return drafts_.at(sequences, levels_); }

  /// Expected acceptance of a node of that joint probability: the proposer's probability, corrected by how
  /// often nodes like it were accepted.
  double calibrated(float probability_by_drafter, Proposer proposer = Proposer::heads) const;

  /// The joint probability below which a node cannot be worth its row, on the generous side: growth leaves
  /// such nodes out (GrowthRule::least_joint) because trim would drop them.
  double least_worth(std::span<const int64_t> contexts) const;

  /// Cuts the trees of the whole batch to the nodes that pay.  Nodes of all trees are ranked by expected
  /// acceptance for the seconds of their row, parents first, and as many are taken as make expected tokens a
  /// second largest; none where that gains less than 4 %.  While the cost of a row is unknown (fewer than two
  /// row counts observed) the best 4 nodes a tree stay.  After 32 steps with guesses, 256 where they clearly
  /// pay, one step goes without, to measure its cost again.  `drafted`: for how many sequences the heads have
  /// drafted; what they gain over the other nodes is kept for worth_drafting.
  void trim(std::vector<CandidateTree>& trees, std::span<const int64_t> contexts, int64_t drafted);

  /// Whether drafting is expected to pay for a batch at all: by what recent trims predicted for batches of
  /// about that size or, before any, whether rows are cheap enough for excellent heads to pay.  Where it is
  /// not, two steps of every 64 still draft, as a probe; of every 128, 256 .. 1024 while probes are in vain,
  /// and from 512 on where rows or drafts are too expensive for any heads.
  bool worth_drafting(std::span<const int64_t> contexts);

  /// How many levels, 1 to `most`, the next draft grows for a batch of so many sequences: as many as pay for
  /// their time (DraftCost::next_levels).
  int64_t draft_levels(int64_t sequences, int64_t most);

  /// Compares what trim predicted of the last step with what it observed; nothing while that step's pass has
  /// not been observed.  worth_drafting calls it too.
  void check_prediction();

 private:
  static constexpr int bins = 20;
  struct Bin {
    double hits = 0;
    double expected = 0;  // sum of the drafter's probabilities
    void add(bool hit, double probability);
    /// hits / expected, as if `assumed` had been observed for a little probability before.
    double correction(double assumed) const;
  };
  struct ProposerRecord {
    Bin all;
    Bin by_probability[bins];
  };
  struct Advantage {
    double ratio = 0;  // running mean of tokens a second with drafting / without, as trims predicted
    double weight = 0;
    double realised = 1;  // running mean of tokens a second observed / predicted
    double realised_weight = 0;
    double realised_ratio() const;
  };
  // What trim expected of a step, and what was observed.
  struct Prediction {
    int64_t sequences = 0;  // 0: there is none
    double tokens = 0, seconds = 0;
    double tokens_observed = 0, seconds_observed = 0;
    bool pass_observed = false;  // else its seconds are not known
  };
  std::optional<double> known_advantage(int64_t sequences) const;
  /// An upper bound: tokens a second with excellent heads / without heads.
  double optimistic_speedup(std::span<const int64_t> contexts) const;
  bool plain_is_due() const;
  bool last_probe_paid(int64_t sequences) const;
  void note_advantage(int64_t sequences, double ratio);
  void note_yield(const std::vector<CandidateTree>& kept, std::span<const int64_t> contexts, int64_t drafted);

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
