#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infer/candidate_tree.h"

namespace clover::infer {

/// What `auto` knows: seconds of a target pass by its number of rows, seconds of drafting, and how often
/// guesses of a given drafter probability were accepted.  Only speed depends on it, never tokens.
class CostModel {
 public:
  /// A pass of `rows` rows took `seconds`.  Kept as a running mean by row count, made monotone when asked.
  void observe_pass(int64_t rows, double seconds);
  /// Drafting for `sequences` sequences took `seconds` in all (prime, heads and growth).
  void observe_draft(int64_t sequences, double seconds);
  /// Whether each node that could be judged (its parent was accepted) was accepted.
  void observe_tree(const CandidateTree& tree, std::span<const int32_t> accepted_nodes);

  double pass_seconds(int64_t rows) const;  // interpolated between what was measured
  double draft_seconds(int64_t sequences) const;
  double calibrated(
      float probability_by_drafter) const;  // expected acceptance of a node of that joint probability

  bool knows_pass(int64_t rows) const;

  /// Cuts the trees of the whole batch to the nodes that pay: nodes are taken in order of expected acceptance
  /// over all trees, parents first, while expected tokens a second rise.  May leave bare roots.
  void trim(std::vector<CandidateTree>& trees) const;

  /// Whether drafting is expected to pay for a batch of `sequences` at all; false now and then turns into
  /// true to look again.
  bool worth_drafting(int64_t sequences);

 private:
  struct Mean {
    double value = 0;
    int64_t count = 0;
    void add(double sample);
  };
  static constexpr int bins = 20;
  std::vector<Mean> passes_;  // by rows
  std::vector<Mean> drafts_;  // by sequences
  Mean hits_[bins];           // by probability
  double expected_gain_ = 1;  // running: accepted guesses a sequence and step when drafted
  int64_t skipped_ = 0;
};

}  // namespace clover::infer
