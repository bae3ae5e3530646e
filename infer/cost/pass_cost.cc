#include "infer/cost/pass_cost.h"

#include <algorithm>

namespace clover::infer {
namespace {

constexpr double attention_memory = 32;  // passes over which the cost of an attended token is averaged
constexpr double attention_outlier_factor =
    2;  // a timing further off than this factor counts as off by this factor

// With attention / without: a smaller ratio is within the noise of timings, so the next run measures again.
constexpr double clearly_more = 1.02;

}  // namespace

void PassCost::observe(int64_t rows, int64_t attended_tokens, double seconds) {
  const double rows_seconds = by_rows_.expected_seconds(rows),
               expected = expected_seconds(rows, attended_tokens);
  const double share = expected > 0 ? rows_seconds / expected : 1;
  by_rows_.observe(rows, seconds * share);
  if (share < 1) {
    const double ratio =
        std::clamp(seconds / expected, 1 / attention_outlier_factor, attention_outlier_factor);
    per_attended_token_ *= 1 + (ratio - 1) * (1 - share) / attention_memory;
  }
}

void PassCost::observe_attention(int64_t rows, int64_t context, double seconds_without, double seconds_with) {
  if (rows < 1 || context < 1) return;
  per_attended_token_ = std::max(0.0, seconds_with - seconds_without) / static_cast<double>(rows * context);
  if (seconds_with > clearly_more * seconds_without)
    attention_context_ = std::max(attention_context_, context);
}

}  // namespace clover::infer
