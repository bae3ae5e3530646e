#pragma once

#include <algorithm>
#include <cstdint>

namespace clover::infer {

/// Exponential back-off of drafting for one sequence.  After 4 steps in a row in which no guess of the heads
/// was worth its row, the heads pause for 4 steps.  If the next draft is useless too, they pause for 8 steps,
/// and so on up to 64.
class DraftBackoff {
 public:
  /// Called once a step.  Counts the pause down and returns whether the heads may draft for the sequence.
  bool tick_and_may_draft() { return steps_left_ == 0 || --steps_left_ == 0; }
  /// Called when the heads drafted in this step.  `useful`: trim kept one of their guesses.
  void record(bool useful) {
    if (useful) {
      *this = {};
    } else if (++misses_ >= patience) {
      misses_ = patience - 1;
      steps_left_ = next_pause_;
      next_pause_ = std::min(2 * next_pause_, max_pause);
    }
  }

 private:
  static constexpr int64_t patience = 4, min_pause = 4, max_pause = 64;  // steps
  int64_t misses_ = 0;              // drafts in a row without a useful guess
  int64_t steps_left_ = 0;          // of the present pause
  int64_t next_pause_ = min_pause;  // steps
};

}  // namespace clover::infer
