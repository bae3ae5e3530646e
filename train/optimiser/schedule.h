#pragma once

#include <cstdint>

namespace clover::train {

/// Learning rate schedule: linear warm-up over `warmup` steps, then cosine decay to 0 at step `total`.
struct Schedule {
  double peak;
  int64_t warmup;
  int64_t total;  // steps of the whole run, >= 1

  /// The rate of `step`, from 0.  The first step has peak / warmup, the last one is above 0.
  double rate(int64_t step) const;
};

}  // namespace clover::train
