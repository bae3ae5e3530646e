#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "infer/candidate_tree.h"
#include "infer/cost_curve.h"

namespace clover::infer {

/// What `auto` knows: seconds of a target pass by its number of rows, seconds of drafting, and how often
/// guesses of a given drafter probability were accepted.  Only speed depends on it, never tokens.
///
/// A step: worth_drafting, then (if so) grow and observe_draft; trim; the pass; observe_pass and
/// observe_tree.
class CostModel {
 public:
  /// A pass of `rows` rows took `seconds`.  Kept as a running mean by row count, made monotone.
  void observe_pass(int64_t rows, double seconds) { passes_.observe(rows, seconds); }
  /// Drafting for `sequences` sequences took `seconds` in all (prime, heads and growth).  The first time
  /// after steps that did not draft is left out: it also read what they had skipped.
  void observe_draft(int64_t sequences, double seconds);
  /// Which nodes of a verified tree were accepted: the target's own path says it of every node.
  void observe_tree(const CandidateTree& tree, std::span<const int32_t> accepted_nodes);

  /// Interpolated between what was measured; 0 while nothing was.
  double pass_seconds(int64_t rows) const { return passes_.at(rows); }
  double draft_seconds(int64_t sequences) const { return drafts_.at(sequences); }

  /// Expected acceptance of a node of that joint probability: the proposer's own word, corrected by what
  /// became of nodes like it.
  double calibrated(float probability_by_drafter, Proposer proposer = Proposer::heads) const;

  bool knows_pass(int64_t rows) const { return passes_.knows(rows); }

  /// The acceptance below which a node is not worth its row in a batch of `sequences`, on the generous side:
  /// what grow need not look at (GrowthRule::least_joint), because trim would drop it.
  double least_worth(int64_t sequences) const;

  /// Cuts the trees of the whole batch to the nodes that pay: nodes are taken in order of expected acceptance
  /// over all trees, parents first, as many as make expected tokens a second largest.  May leave bare roots.
  /// While the cost of a row is unknown (fewer than two row counts observed) the best 4 nodes a tree stay.
  /// `drafted`: whether the heads were asked; what they gained over the other nodes is remembered for
  /// worth_drafting.
  void trim(std::vector<CandidateTree>& trees, bool drafted = true);

  /// Whether drafting is expected to pay for a batch of `sequences` at all, from what recent trims promised
  /// for batches of about that size; at first, whether rows are cheap enough for excellent heads to pay.
  /// Where it says no, two steps of every 64 still say yes, to look again; of every 128, 256 .. 1024 when
  /// that was for nothing.
  bool worth_drafting(int64_t sequences);

 private:
  static constexpr int bins = 20;
  struct Bin {
    double hits = 0;
    double expected = 0;  // sum of the drafter's probabilities
  };
  struct Advantage {
    double ratio = 0;  // running mean of tokens a second when drafting / when not
    double weight = 0;
  };
  std::optional<double> known_advantage(int64_t sequences) const;
  /// Tokens a second with excellent heads over those without.
  double best_hope(int64_t sequences) const;
  void note_advantage(int64_t sequences, double ratio);

  CostCurve passes_;                         // by rows
  CostCurve drafts_;                         // by sequences
  Bin bins_[2][bins];                        // by proposer and joint probability
  std::map<int64_t, Advantage> advantages_;  // by sequences
  int64_t skipped_ = 0;                      // steps since drafting last paid or was last looked at
  int64_t period_ = 64;                      // steps from one look to the next
  bool behind_ = false;                      // the last step did not draft
};

}  // namespace clover::infer
