#pragma once

#include <cstdint>
#include <vector>

namespace clover::train {

/// Which samples a training step reads.  Each epoch is a permutation of all samples that depends only on seed
/// and epoch, so a resumed run needs no saved random state.
class DataOrder {
 public:
  /// `samples`: how many there are; `batch`: samples of a step; both >= 1.
  DataOrder(int64_t samples, int64_t batch, uint64_t seed);

  int64_t steps_per_epoch() const { return (samples_ + batch_size_ - 1) / batch_size_; }
  int64_t epoch_of(int64_t step) const { return step / steps_per_epoch(); }

  /// Indices of the samples of step `step` of the run, from 0.  The last batch of an epoch may be smaller.
  std::vector<int64_t> batch(int64_t step);

 private:
  int64_t samples_;
  int64_t batch_size_;
  uint64_t seed_;
  int64_t epoch_ = -1;  // the epoch of permutation_
  std::vector<int64_t> permutation_;
};

}  // namespace clover::train
