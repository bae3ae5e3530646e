#include "train/optimiser/data_order.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>

#include "kernels/vocabulary/sample.h"

namespace clover::train {

DataOrder::DataOrder(int64_t samples, int64_t batch, uint64_t seed)
    : samples_(samples), batch_size_(batch), seed_(seed) {
  TORCH_CHECK(samples >= 1 && batch >= 1, "data order of ", samples, " samples in batches of ", batch);
}

std::vector<int64_t> DataOrder::batch(int64_t step) {
  const int64_t epoch = epoch_of(step);
  if (epoch != epoch_) {
    permutation_.resize(samples_);
    std::iota(permutation_.begin(), permutation_.end(), 0);
    for (int64_t last = samples_ - 1; last > 0; --last) {  // Fisher-Yates
      const double uniform =
          kernels::philox_uniform(seed_, static_cast<uint64_t>(epoch), 0, static_cast<uint64_t>(last));
      std::swap(permutation_[last],
                permutation_[static_cast<int64_t>(uniform * static_cast<double>(last + 1))]);
    }
    epoch_ = epoch;
  }
  const int64_t begin = (step % steps_per_epoch()) * batch_size_;
  const int64_t end = std::min(begin + batch_size_, samples_);
  return {permutation_.begin() + begin, permutation_.begin() + end};
}

}  // namespace clover::train
