#include "train/optimiser/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace clover::train {

double Schedule::rate(int64_t step) const {
  const int64_t warmup_steps = std::min(warmup, total);  // a run shorter than its warm-up has no decay
  if (step < warmup_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  const double progress = static_cast<double>(step - warmup_steps) /
                          static_cast<double>(std::max<int64_t>(total - warmup_steps, 1));
  return peak * 0.5 * (1 + std::cos(std::numbers::pi * std::min(progress, 1.0)));
}

}  // namespace clover::train
