#include "infer/cost/pass_cost.h"

#include <algorithm>

namespace clover::infer {
namespace {

constexpr double position_memory = 32;  // passes that a position's cost remembers
constexpr double position_outlier = 2;  // a timing further off than this factor counts as this far

// A smaller ratio is within the noise of timings, and the next run measures it again.
constexpr double clearly_more = 1.02;

}  // namespace

void PassCost::observe(int64_t rows, int64_t positions, double seconds) {
  const double of_rows = by_rows_.at(rows), expected = at(rows, positions);
  const double share = expected > 0 ? of_rows / expected : 1;
  by_rows_.observe(rows, seconds * share);
  if (share < 1) {
    const double ratio = std::clamp(seconds / expected, 1 / position_outlier, position_outlier);
    per_position_ *= 1 + (ratio - 1) * (1 - share) / position_memory;
  }
}

void PassCost::observe_attention(int64_t rows, int64_t context, double seconds_without, double seconds_with) {
  if (rows < 1 || context < 1) return;
  per_position_ = std::max(0.0, seconds_with - seconds_without) / static_cast<double>(rows * context);
  if (seconds_with > clearly_more * seconds_without)
    attention_context_ = std::max(attention_context_, context);
}

}  // namespace clover::infer
