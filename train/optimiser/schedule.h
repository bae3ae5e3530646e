#pragma once

#include <cstdint>

namespace clover::train {

/// Learning rate by step: a linear rise over `warmup` steps, then half a cosine down to 0 at `total`.
struct Schedule {
  double peak;
  int64_t warmup;
  int64_t total;  // steps of the whole run, >= 1

  /// step counts from 0: the first step already moves (rate peak / warmup), the last one is above 0.
  double rate(int64_t step) const;
};

}  // namespace clover::train
