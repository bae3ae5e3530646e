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
  /// Guesses of one level that are verified, in all trees of a step.
  struct Level {
    double tokens = 0;  // of them, that are expected to be accepted
    double rows = 0;
  };
  /// A step that drafts for some of its sequences.
  struct Step {
    int64_t sequences;       // of the batch
    int64_t drafted;         // of these, that the heads draft for: 1 or more
    double plain_seconds;    // of its pass without guesses
    double seconds_per_row;  // that a guess adds to the pass
  };

  /// A draft of so many levels took `seconds` for `sequences` sequences.
  void observe(int64_t sequences, int64_t levels, double seconds);
  /// What became of a draft for so many sequences, level by level.
  void observe(int64_t drafted, std::span<const Level> levels);

  /// Seconds of a draft of so many levels for so many sequences; 0 while nothing was timed.  Linear between
  /// levels that were timed; beyond them proportional to levels + 1, because reading the accepted rows takes
  /// about as long as a level.
  double at(int64_t sequences, int64_t levels) const;
  /// Whether drafts of some number of levels were timed so often for so many sequences.
  bool knows(int64_t sequences, double timings) const;

  /// How many levels, 1 to `max_levels`, the draft of a step has: as many as make tokens a second largest.
  /// The first drafts, and two of every 64 later on, have all levels or half of them, because what a level
  /// costs and is worth shows only where it is drafted.
  int64_t next_levels(const Step& step, int64_t max_levels);
  /// Expected tokens a second with the best number of levels / with that of the last draft: 1 or more.
  double best_over_last(const Step& step) const;

 private:
  /// What a level yields for each sequence that is drafted for, as running means.
  struct MeanLevel : Level {
    double drafts = 0;      // that these are the means of
    int64_t last_seen = 0;  // number of the last of these drafts
  };
  double tokens_a_second(const Step& step, int64_t levels) const;
  int64_t best_levels(const Step& step) const;

  std::map<int64_t, CostCurve> by_levels_;  // seconds by sequences, for each number of levels that was timed
  std::vector<MeanLevel> levels_;           // up to the deepest that was drafted
  int64_t drafts_ = 0;                      // so far
  int64_t max_levels_ = 1, last_levels_ = 1;  // that there could be, and that there were, in the last draft
  int64_t best_levels_ = 0;                   // best levels when they were last compared; 0: never
};

}  // namespace clover::infer
