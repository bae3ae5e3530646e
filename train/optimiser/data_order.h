#pragma once

#include <cstdint>
#include <vector>

namespace clover::train {

/// The order of samples: for each epoch a permutation that depends only on seed and epoch, so that a resumed
/// run needs no saved random state.
class DataOrder {
 public:
  DataOrder(int64_t samples, int64_t batch, uint64_t seed);  // both >= 1

  int64_t steps_per_epoch() const { return (samples_ + batch_ - 1) / batch_; }
  int64_t epoch_of(int64_t step) const { return step / steps_per_epoch(); }

  /// Samples of global step `step`, from 0.  The last batch of an epoch may be smaller.
  std::vector<int64_t> batch(int64_t step);

 private:
  int64_t samples_;
  int64_t batch_;
  uint64_t seed_;
  int64_t epoch_ = -1;  // the epoch of permutation_
  std::vector<int64_t> permutation_;
};

}  // namespace clover::train
