#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "infer/cost/draft_cost.h"
#include "infer/cost/node_choice.h"
#include "infer/cost/pass_cost.h"
#include "infer/tree/candidate_tree.h"

namespace clover::infer {

/// The estimates on which the growth policy `auto` decides: seconds of a target pass by its rows and the
/// cached tokens they attend to, seconds of drafting, and how often guesses of a given proposed probability
/// are accepted.  Only speed depends on them, never tokens.  `context_lengths`: the cached tokens of each
/// sequence of the batch.
///
/// The order of calls in a step: worth_drafting; if that is true, min_joint_probability and draft_levels,
/// then the trees grow, then observe_draft; then trim, the pass, observe_pass and observe_tree.  Where the
/// GPU drafts for the next step while the pass still runs (RunAhead, infer/engine/run_ahead.h), a step begins
/// with learn_from_prediction and observe_draft, and worth_drafting, min_joint_probability and draft_levels
/// come after trim.
class CostModel {
 public:
  /// What a target pass costs; Calibration measures it directly.
  PassCost& passes() { return passes_; }
  const PassCost& passes() const { return passes_; }

  /// The pass of a step took `seconds`; `rows` and `attended_tokens` as in PassCost.
  void observe_pass(int64_t rows, int64_t attended_tokens, double seconds);
  /// Drafting for `sequences` sequences took `seconds` in all: reading the target's features, the heads and
  /// tree growth.  `representative` is false where the draft also read rows left over from earlier steps, or
  /// was the first of its shape: such a time says nothing about other drafts.
  void observe_draft(int64_t sequences, double seconds, bool representative = true);
  /// `accepted_nodes`: AcceptedPath::nodes of the verified tree.
  void observe_tree(const CandidateTree& tree, std::span<const int32_t> accepted_nodes);

  /// Expected seconds of a draft with as many levels as the last one; 0 while no draft was timed.
  double draft_seconds(int64_t sequences) const { return drafts_.expected_seconds(sequences, levels_); }

  /// Probability that a node is accepted: the joint probability that its proposer gave it, corrected by how
  /// often nodes of about that probability were accepted.
  double calibrated_probability(float proposed_probability, Proposer proposer = Proposer::heads) const;

  /// A joint probability below which a node cannot be worth its row: an estimate that is rather too low than
  /// too high.  Growth leaves such nodes out (GrowthRule::min_joint_probability), because trim would drop
  /// them.
  double min_joint_probability(std::span<const int64_t> context_lengths) const;

  /// Cuts the trees of the whole batch to the nodes that pay.  The nodes of all trees are ranked by expected
  /// acceptance per second that their row adds to the pass, a parent before its children.  Then as many nodes
  /// stay, from the first, as give the most expected tokens per second; none where that gains less than 4 %.
  /// While the cost of a row is unknown (fewer than two row counts observed) the best 4 nodes of a tree stay.
  /// After 32 steps with guesses, or 256 where guesses clearly pay, one step has none, so that plain decoding
  /// is timed again.  `drafted_sequences`: for how many the heads have drafted.  The gain of the heads' nodes
  /// over the other nodes is recorded for worth_drafting.
  void trim(std::vector<CandidateTree>& trees, std::span<const int64_t> context_lengths,
            int64_t drafted_sequences);

  /// For trees whose nodes all come from the text, not from the heads: whether trim would keep any node.  If
  /// not, the step counts as one without guesses.
  bool pays(const std::vector<CandidateTree>& trees, std::span<const int64_t> context_lengths);

  /// Whether the heads shall draft in this step, because that is expected to pay.  The estimate is what
  /// recent calls of trim predicted for batches of about that size; before there are any, whether rows are
  /// cheap enough for excellent heads (80 % of guesses accepted) to pay.  Where drafting does not pay, the
  /// last two steps of every 64 still draft, as a probe.  Each probe that does not pay doubles that interval,
  /// up to 1024 steps.  Where not even excellent heads would pay, the interval is at least 512 steps.
  bool worth_drafting(std::span<const int64_t> context_lengths);

  /// How many levels, 1 to `max_levels`, the next draft has when the heads draft for `drafted_sequences` of
  /// the batch: as many as pay for their time (DraftCost::next_levels).
  int64_t draft_levels(std::span<const int64_t> context_lengths, int64_t drafted_sequences,
                       int64_t max_levels);

  /// Compares what trim predicted for the last step with what was observed.  Does nothing while the trees of
  /// that step have not been verified.  worth_drafting calls it too.
  void learn_from_prediction();

 private:
  static constexpr int bins = 20;  // ranges of proposed probabilities
  /// Nodes of about the same proposed probability.  Older nodes weigh less.
  struct Bin {
    double hits = 0;      // accepted nodes
    double expected = 0;  // sum of the proposed probabilities
    void add(bool hit, double probability);
    /// hits / expected, drawn towards `assumed` while few nodes were observed.
    double correction(double assumed) const;
  };
  struct ProposerRecord {
    Bin overall;  // nodes of any probability
    Bin by_probability[bins];
  };
  /// What drafting gains for batches of one number of sequences, as running means.  Ratios are of tokens per
  /// second.
  struct Advantage {
    double predicted_ratio = 0;          // with drafting / without, as calls of trim predicted
    double trims = 0;                    // how many calls it is the mean of, at most a constant
    double observed_over_predicted = 1;  // with drafting, as observed / as predicted
    double sequence_steps = 0;           // how many steps it is the mean of, times sequences
    double corrected_ratio() const;      // predicted_ratio, corrected by what was observed
  };
  /// What trim predicted for a step, and what was observed.
  struct Prediction {
    int64_t sequences = 0;  // 0: no prediction was made
    double tokens = 0, seconds = 0;
    double tokens_observed = 0, seconds_observed = 0;
    bool pass_timed = false;  // seconds_observed includes the pass
  };
  std::optional<double> expected_advantage(int64_t sequences) const;
  /// Tokens per second with excellent heads / without heads, with the best of half a guess, one or two
  /// for each sequence: a rough bound of what heads gain.
  double optimistic_speedup(std::span<const int64_t> context_lengths) const;
  bool plain_step_is_due() const;
  bool predicted_to_pay(int64_t sequences) const;
  void record_advantage(int64_t sequences, double ratio);
  std::vector<RankedNode> ranked_nodes(const std::vector<CandidateTree>& trees,
                                       std::span<const int64_t> context_lengths) const;
  /// Tells drafts_ which of the heads' nodes trim `kept`, level by level.
  void record_yield(std::span<const RankedNode> kept, int64_t drafted_sequences);
  DraftCost::Step step_of(std::span<const int64_t> context_lengths, int64_t drafted_sequences) const;

  PassCost passes_;
  DraftCost drafts_;
  int64_t levels_ = 1;                       // of the last draft
  ProposerRecord proposers_[2];              // by Proposer
  std::map<int64_t, Advantage> advantages_;  // by number of sequences
  Prediction prediction_;                    // for the last step that trim saw
  int64_t steps_since_plain_ = 0;            // steps with guesses since the last one without
  double gain_ = 1;                // tokens per second with guesses / without, a running mean of predictions
  int64_t steps_since_probe_ = 0;  // steps since drafting paid or the last probe
  int64_t probe_interval_ = 64;    // steps from one probe to the next
};

}  // namespace clover::infer
