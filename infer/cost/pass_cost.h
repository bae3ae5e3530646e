#pragma once

#include <cstdint>
#include <utility>

#include "infer/cost/cost_curve.h"

namespace clover::infer {

/// Seconds of a target pass: of its rows, and of the cached tokens that attention reads for them, summed over
/// the rows ("positions": 3 rows behind 500 tokens look back at 1500).  Learnt from timings.
class PassCost {
 public:
  PassCost() = default;
  /// What was known before: by_rows, per_position and attention_context.
  PassCost(CostCurve by_rows, double per_position, int64_t attention_context)
      : by_rows_(std::move(by_rows)), per_position_(per_position), attention_context_(attention_context) {}

  /// A pass of `rows` rows over `positions` took `seconds`: what it was slower or faster than expected moves
  /// both parts, each by its share.
  void observe(int64_t rows, int64_t positions, double seconds);

  /// A pass without context took `seconds`, in which nothing but its cost was of interest.
  void measure(int64_t rows, double seconds) {
    by_rows_.observe(rows, seconds, CostCurve::Chosen::to_measure);
  }
  /// See CostCurve.
  void doubt(int64_t rows) { by_rows_.doubt(rows); }
  void rescale(double factor) {
    by_rows_.rescale(factor);
    per_position_ *= factor;
  }

  /// What `context` cached tokens added to a pass of `rows` rows that was timed without and with them.
  void observe_attention(int64_t rows, int64_t context, double seconds_without, double seconds_with);

  /// 0 while nothing was observed.
  double at(int64_t rows, int64_t positions = 0) const {
    return by_rows_.at(rows) + per_position_ * static_cast<double>(positions);
  }

  /// From that many passes.
  bool knows(int64_t rows, double passes = 1) const { return by_rows_.knows(rows, passes); }
  /// Different row counts observed.
  int64_t points() const { return by_rows_.points(); }

  const CostCurve& by_rows() const { return by_rows_; }
  double per_position() const { return per_position_; }  // seconds
  /// The longest that observe_attention was told of and that took time, in tokens; 0: none.
  int64_t attention_context() const { return attention_context_; }

 private:
  CostCurve by_rows_;
  double per_position_ = 0;
  int64_t attention_context_ = 0;
};

}  // namespace clover::infer
