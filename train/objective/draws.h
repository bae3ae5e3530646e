#pragma once

#include <cstdint>
#include <span>

namespace clover::train {

/// The random numbers of a training step.  Each is a function of the run's seed, the step, the sample and the
/// row alone, so neither micro-batches, nor the number of processes, nor an interruption changes them.
struct Draws {
  enum class Purpose : uint64_t { feed, label };

  uint64_t seed = 0;
  int64_t step = 0;
  std::span<const int64_t> samples{};  // the number in the store of each sample of the batch

  /// The `index`-th number in [0, 1) for the row at position t of sample `sample` of the batch, at `depth`.
  double uniform(Purpose purpose, int64_t sample, int64_t t, int64_t depth, int64_t index = 0) const;
};

}  // namespace clover::train
