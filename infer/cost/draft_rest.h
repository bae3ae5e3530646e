#pragma once

#include <algorithm>
#include <cstdint>

namespace clover::infer {

/// Whether the heads are asked about a sequence: for a while not, after several steps in which no guess of
/// theirs was worth its row, and ever longer while that goes on.
class DraftRest {
 public:
  /// Asked once a step.
  bool over() { return left_ == 0 || --left_ == 0; }
  /// They were asked: whether a guess of theirs stood in the tree that was verified.
  void note(bool guessed) {
    if (guessed) {
      *this = {};
    } else if (++misses_ >= patience) {
      misses_ = patience - 1;
      left_ = length_;
      length_ = std::min(2 * length_, longest);
    }
  }

 private:
  static constexpr int64_t patience = 4, shortest = 4, longest = 64;  // steps
  int64_t misses_ = 0, left_ = 0, length_ = shortest;
};

}  // namespace clover::infer
