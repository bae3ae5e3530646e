#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "infer/cost/cost_curve.h"

namespace clover::infer {

/// Chooses how many levels a draft has.  Learns how many seconds a draft takes by its sequences and levels,
/// and how many tokens and rows the guesses of each level add.
class DraftCost {
 public:
  /// The heads' guesses of one level that trim kept, in all trees of a step.
  struct Level {
    double tokens = 0;  // expected number of accepted ones
    double rows = 0;    // their number
  };
  /// A step in which the heads draft for some of the sequences.
  struct Step {
    int64_t sequences;       // in the batch
    int64_t drafted;         // of these, those for which the heads draft: 1 or more
    double plain_seconds;    // expected for the pass without guesses
    double seconds_per_row;  // expected for each guess that the pass verifies
  };

  /// A draft of `levels` levels for `sequences` sequences took `seconds`.
  void observe(int64_t sequences, int64_t levels, double seconds);
  /// What trim kept of a draft for `drafted` sequences, level by level.
  void observe_levels(int64_t drafted, std::span<const Level> levels);

  /// Expected seconds of a draft of `levels` levels for `sequences` sequences; 0 while nothing was timed.
  /// Linear between the numbers of levels that were timed.  Outside them proportional to levels + 1, because
  /// reading the accepted rows takes about as long as one level.
  double expected_seconds(int64_t sequences, int64_t levels) const;
  /// Whether drafts of any one number of levels were timed at least `timings` times for `sequences`
  /// sequences.
  bool has_timings(int64_t sequences, double timings) const;

  /// How many levels, 1 to `max_levels`, the draft of a step has: the number with the most expected tokens
  /// per second.  The first drafts, and two of every 64 later on, are trials with all levels or half of them,
  /// because only a level that is drafted shows what it costs and yields.
  int64_t next_levels(const Step& step, int64_t max_levels);
  /// Expected tokens per second with the best number of levels / with that of the last draft: 1 or more.
  double best_over_last(const Step& step) const;

 private:
  /// What a level yields per sequence that is drafted for, as running means.
  struct MeanLevel : Level {
    double drafts = 0;      // how many drafts the means are of, at most a constant
    int64_t last_seen = 0;  // number of the last draft that had this level
  };
  double tokens_per_second(const Step& step, int64_t levels) const;
  int64_t best_levels(const Step& step) const;

  std::map<int64_t, CostCurve> by_levels_;  // number of levels -> seconds by sequences
  std::vector<MeanLevel> levels_;           // up to the deepest level that was drafted
  int64_t drafts_ = 0;                      // so far
  int64_t max_levels_ = 1;                  // argument of the last next_levels
  int64_t last_levels_ = 1;                 // its result
  int64_t best_levels_ = 0;  // the best number when numbers were last compared; 0: not compared yet
};

}  // namespace clover::infer
