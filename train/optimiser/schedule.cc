#include "train/optimiser/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace clover::train {

double Schedule::rate(int64_t step) const {
  const int64_t rise = std::min(warmup, total);  // a run shorter than its warm-up has no decay
  if (step < rise) return peak * static_cast<double>(step + 1) / static_cast<double>(rise);
  const double progress =
      static_cast<double>(step - rise) / static_cast<double>(std::max<int64_t>(total - rise, 1));
  return peak * 0.5 * (1 + std::cos(std::numbers::pi * std::min(progress, 1.0)));
}

}  // namespace clover::train
