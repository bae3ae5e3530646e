#pragma once

#include <cstdint>

namespace clover::train {

/// Learning rate schedule: linear warm-up over `warmup` steps, then cosine decay to 0 at step `total`.
struct Schedule {
  double peak;     // the highest learning rate
  int64_t warmup;  // steps
  int64_t total;   // steps of the whole run, >= 1

  /// The learning rate of step `step`, from 0: peak / warmup at the first one, above 0 at the last one.
  double rate(int64_t step) const;
};

}  // namespace clover::train
