#pragma once

#include <cstdint>
#include <utility>

#include "infer/cost/cost_curve.h"

namespace clover::infer {

/// Seconds of a target pass, learnt from timings: a curve over its rows, plus a constant for each attended
/// token.  Attended tokens are the cached tokens that attention reads, summed over rows: 3 rows after 500
/// cached tokens attend to 1500.
class PassCost {
 public:
  PassCost() = default;
  /// What an earlier run learnt: by_rows(), per_attended_token() and attention_context().
  PassCost(CostCurve by_rows, double per_attended_token, int64_t attention_context)
      : by_rows_(std::move(by_rows)),
        per_attended_token_(per_attended_token),
        attention_context_(attention_context) {}

  /// A pass took `seconds`.  The difference from the expected seconds corrects the curve and the constant,
  /// each in proportion to its share of them.
  void observe(int64_t rows, int64_t attended_tokens, double seconds);

  /// A pass without context, which ran only for calibration, took `seconds`.
  void observe_calibration(int64_t rows, double seconds) {
    by_rows_.observe(rows, seconds, CostCurve::Reason::calibration);
  }
  /// The last timing of `rows` rows is old: the next ones change the curve more.
  void mark_stale(int64_t rows) { by_rows_.mark_stale(rows); }
  /// The machine is slower by this factor than when the costs were learnt.
  void rescale(double factor) {
    by_rows_.rescale(factor);
    per_attended_token_ *= factor;
  }

  /// A pass of `rows` rows was timed without and with `context` cached tokens before it.
  void observe_attention(int64_t rows, int64_t context, double seconds_without, double seconds_with);

  /// Expected seconds of a pass; 0 while nothing was observed.
  double expected_seconds(int64_t rows, int64_t attended_tokens = 0) const {
    return by_rows_.expected_seconds(rows) + per_attended_token_ * static_cast<double>(attended_tokens);
  }

  /// Whether at least `passes` passes of `rows` rows were timed.
  bool has_timings(int64_t rows, double passes = 1) const { return by_rows_.has_timings(rows, passes); }
  /// How many different numbers of rows were timed.
  int64_t timed_row_counts() const { return by_rows_.points(); }

  const CostCurve& by_rows() const { return by_rows_; }
  double per_attended_token() const { return per_attended_token_; }  // in seconds
  /// The longest context of observe_attention that took measurable time, in tokens; 0: none.
  int64_t attention_context() const { return attention_context_; }

 private:
  CostCurve by_rows_;
  double per_attended_token_ = 0;
  int64_t attention_context_ = 0;
};

}  // namespace clover::infer
