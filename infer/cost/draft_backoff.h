#pragma once

#include <algorithm>
#include <cstdint>

namespace clover::infer {

/// Exponential back-off of drafting for one sequence: after 4 steps in a row in which no guess of the heads
/// was worth its row, the heads pause for it for 4 steps, then for 8 .. 64 while that goes on.
class DraftBackoff {
 public:
  /// Counts one step down; returns whether the heads draft for the sequence in this step.
  bool tick_and_may_draft() { return left_ == 0 || --left_ == 0; }
  /// The heads drafted in this step; `useful`: one of their guesses was in the tree that was verified.
  void note(bool useful) {
    if (useful) {
      *this = {};
    } else if (++misses_ >= patience) {
      misses_ = patience - 1;
      left_ = length_;
      length_ = std::min(2 * length_, longest);
    }
  }

 private:
  static constexpr int64_t patience = 4, shortest = 4, longest = 64;  // steps
  int64_t misses_ = 0;                                                // steps in a row without a useful guess
  int64_t left_ = 0;                                                  // steps of the present pause
  int64_t length_ = shortest;                                         // of the next pause
};

}  // namespace clover::infer
