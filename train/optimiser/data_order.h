#pragma once

#include <cstdint>
#include <vector>

namespace clover::train {

/// In which order samples are read: a new permutation each epoch that depends on nothing but the seed and the
/// epoch, so that a continued run reads on where it was without any saved random state.
class DataOrder {
 public:
  DataOrder(int64_t samples, int64_t batch, uint64_t seed);  // both >= 1

  int64_t steps_per_epoch() const { return (samples_ + batch_ - 1) / batch_; }
  int64_t epoch_of(int64_t step) const { return step / steps_per_epoch(); }

  /// Samples of global step `step` (0 = first of the run); the last batch of an epoch may be shorter.
  std::vector<int64_t> batch(int64_t step);

 private:
  int64_t samples_;
  int64_t batch_;
  uint64_t seed_;
  int64_t epoch_ = -1;  // whose permutation is held
  std::vector<int64_t> permutation_;
};

}  // namespace clover::train
