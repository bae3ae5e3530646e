#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "infer/cost/cost_curve.h"

namespace clover::infer {

/// How many levels it pays to draft.  Learns the seconds of a draft by its sequences and levels, and what the
/// guesses of each level are worth.
class DraftCost {
 public:
  /// What the drafts of a step are expected to yield: their guesses that are about to be verified.
  struct Yield {
    /// Guesses of one level, in all trees.
    struct Level {
      double tokens = 0;   // guesses that are expected to be accepted
      double seconds = 0;  // that their rows add to the pass
    };
    double sequences;      // of the batch
    double drafted;        // of these, that the heads drafted for
    double plain_seconds;  // of a pass without guesses
    std::span<const Level> levels;
  };

  /// A draft of so many levels took `seconds` for `sequences` sequences.
  void observe(int64_t sequences, int64_t levels, double seconds);
  void observe(const Yield& yield);

  /// Seconds of a draft of so many levels for so many sequences; 0 while nothing was timed.  Linear between
  /// levels that were timed; beyond them proportional to levels + 1, because reading the accepted rows takes
  /// about as long as a level.
  double at(int64_t sequences, int64_t levels) const;
  /// Whether drafts of some number of levels were timed so often for so many sequences.
  bool knows(int64_t sequences, double timings) const;

  /// How many levels, 1 to `max_levels`, the next draft has: as many as make tokens a second largest.  The
  /// first drafts, and two of every 64 later on, have all levels or half of them, because what a level costs
  /// and is worth shows only where it is drafted.
  int64_t next_levels(int64_t sequences, int64_t max_levels);
  /// Expected tokens a second with the best number of levels / with that of the last draft: 1 or more.
  double best_over_last(int64_t sequences) const;

 private:
  double tokens_a_second(int64_t sequences, int64_t levels) const;
  int64_t best_levels(int64_t sequences) const;

  std::map<int64_t, CostCurve> by_levels_;  // seconds by sequences, for each number of levels that was timed
  // Running means of yields, for each sequence that was drafted for.
  struct MeanLevel : Yield::Level {
    double steps = 0;  // that these are the means of
  };
  std::vector<MeanLevel> levels_;
  double sequences_ = 1;      // sequences of the batch
  double plain_seconds_ = 0;  // seconds of the pass without guesses
  double steps_ = 0;          // that these two are the means of
  int64_t drafts_ = 0;        // so far
  int64_t max_levels_ = 1;
  int64_t last_levels_ = 1;  // of the last draft
  int64_t best_levels_ = 0;  // best levels when they were last compared; 0: never
};

}  // namespace clover::infer
