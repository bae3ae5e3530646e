#pragma once

#include <cstdint>
#include <vector>

namespace clover::infer {

/// Seconds as a function of a count (rows of a pass, sequences drafted), learnt from timings: a running mean
/// at every count seen, never falling with the count, straight lines between and beyond.  Timings that are
/// slow by accident hardly move it; a lasting change (longer contexts, a warmer machine) moves all of it.
class CostCurve {
 public:
  void observe(int64_t count, double seconds);

  /// 0 while nothing was observed; the cheapest point's value below it.
  double at(int64_t count) const;

  bool knows(int64_t count) const;
  int64_t points() const { return static_cast<int64_t>(points_.size()); }

 private:
  struct Point {
    int64_t count;
    double seconds;   // running mean, in units of drift_
    double weight;    // how many observations it stands for
    double monotone;  // `seconds` made non-decreasing along the curve
    int far_side;     // of the mean the last timing was an outlier on: 1 above, -1 below, 0 neither
  };
  void make_monotone();

  std::vector<Point> points_;  // ascending by count
  double drift_ = 1;           // what all points have in common to multiply with
};

}  // namespace clover::infer
