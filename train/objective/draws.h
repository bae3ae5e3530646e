#pragma once

#include <cstdint>
#include <span>

namespace clover::train {

/// The random numbers of a training step.  Each is a function of the run's seed, the step, the sample and the
/// row alone.  So they depend neither on micro-batches, nor on the number of processes, nor on interruptions.
struct Draws {
  /// feed: whether a row is fed the heads' own guess (rollout.h); label: a label drawn from the target's
  /// distribution (objective.h).
  enum class Purpose : uint64_t { feed, label };

  uint64_t seed = 0;
  int64_t step = 0;
  std::span<const int64_t> samples{};  // for each sample of the batch its index in the token store

  /// The `index`-th number in [0, 1) for the row at position `t` of sample `sample` of the batch, at head
  /// `depth`.
  double uniform(Purpose purpose, int64_t sample, int64_t t, int64_t depth, int64_t index = 0) const;
};

}  // namespace clover::train
