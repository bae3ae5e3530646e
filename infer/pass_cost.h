#pragma once

#include <cstdint>

#include "infer/cost_curve.h"

namespace clover::infer {

/// Seconds of a target pass: of its rows, and of the cached tokens that attention reads for them, summed over
/// the rows ("positions": 3 rows behind 500 tokens look back at 1500).  Learnt from timings.
class PassCost {
 public:
  /// A pass of `rows` rows over `positions` took `seconds`: what it was slower or faster than expected moves
  /// both parts, each by its share.
  void observe(int64_t rows, int64_t positions, double seconds);

  /// What `positions` added to a pass that was timed without and with them.
  void observe_attention(int64_t positions, double seconds_without, double seconds_with);

  /// 0 while nothing was observed.
  double at(int64_t rows, int64_t positions = 0) const {
    return by_rows_.at(rows) + per_position_ * static_cast<double>(positions);
  }

  bool knows(int64_t rows) const { return by_rows_.knows(rows); }
  /// Different row counts observed.
  int64_t points() const { return by_rows_.points(); }

 private:
  CostCurve by_rows_;
  double per_position_ = 0;
};

}  // namespace clover::infer
