#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "infer/cost/cost_curve.h"

namespace clover::infer {

/// Seconds of a draft by its sequences and levels, and what the guesses of each level have been worth: both
/// together say how deep it pays to draft.
class DraftCost {
 public:
  /// What became of the drafts of a step.
  struct Yield {
    /// Of the nodes of a level that were verified, all trees together.
    struct Level {
      double tokens = 0;   // expected to be accepted
      double seconds = 0;  // that their rows add to the pass
    };
    double sequences, drafted;  // of the batch; of these, that the heads drafted for
    double plain_seconds;       // of a pass without guesses
    std::span<const Level> levels;
  };

  /// A draft of so many levels took `seconds` for `sequences` sequences.
  void observe(int64_t sequences, int64_t levels, double seconds);
  void observe(const Yield& yield);

  /// Linear between levels that were timed; a draft's first reading of rows counts as a level beyond them.  0
  /// while nothing was timed.
  double at(int64_t sequences, int64_t levels) const;
  /// Whether drafts of some depth were timed so often for so many sequences.
  bool knows(int64_t sequences, double timings) const;

  /// How many levels, 1 to `most`, the next draft has: as many as make tokens a second largest.  The first
  /// drafts and two of 64 have all `most` or half of these, because what a level costs and is worth shows
  /// only where it is drafted.
  int64_t next_levels(int64_t sequences, int64_t most);
  /// Tokens a second at the best depth over those at the last draft's: 1 or more.
  double best_over_last(int64_t sequences) const;

 private:
  double tokens_a_second(int64_t sequences, int64_t levels) const;
  int64_t best_levels(int64_t sequences) const;

  std::map<int64_t, CostCurve> by_levels_;  // by sequences
  // Running means for one sequence that is drafted for.
  struct Level : Yield::Level {
    double weight = 0;
  };
  std::vector<Level> levels_;
  double sequences_ = 1, plain_seconds_ = 0, weight_ = 0;  // its share of the batch; their weight
  int64_t drafts_ = 0;
  int64_t most_ = 1, last_ = 1;  // levels that there may be, and those of the last draft
  int64_t chosen_ = 0;           // levels that were best at the last draft; 0: there was none
};

}  // namespace clover::infer
