#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace clover::infer {

/// Seconds as a function of a count (rows of a pass, sequences drafted), learnt from timings: a running mean
/// at every count seen, never falling with the count, straight lines between and beyond, from which a count
/// seen for the first time sets out.  Timings that are slow by accident hardly move it; a lasting change
/// (longer contexts, a warmer machine) moves all of it.
class CostCurve {
 public:
  struct Point {
    int64_t count;
    double seconds;  // running mean
    double timings;  // how often it was timed, a little less for each run that did not
  };

  CostCurve() = default;
  /// What was known() to an earlier run, ascending by count.
  explicit CostCurve(std::span<const Point> known);

  /// Why a count was timed.  The one that seems cheapest of many is often only the one whose clock was
  /// fastest, so its neighbours are believed more than its first timings.
  enum class Chosen { for_its_cost, to_measure };
  void observe(int64_t count, double seconds, Chosen chosen = Chosen::for_its_cost);

  /// The machine is slower by this factor than when the curve was learnt.
  void rescale(double factor);
  /// `count` was not seen for long, and its next timings shall count for more than what others told of it.
  void doubt(int64_t count);

  /// 0 while nothing was observed; the cheapest point's value below it.
  double at(int64_t count) const;

  /// From that many timings.
  bool knows(int64_t count, double timings = 1) const;
  int64_t points() const { return static_cast<int64_t>(points_.size()); }
  std::vector<Point> known() const;

 private:
  struct Running : Point {  // seconds in units of drift_
    double weight = 1;      // how many observations the mean stands for
    bool timed = false;     // by this object
    double monotone = 0;    // `seconds` made non-decreasing along the curve
    int far_side = 0;       // of the mean the last timing was an outlier on: 1 above, -1 below, 0 neither
  };
  void move(Running& point, double seconds);
  void make_monotone();

  std::vector<Running> points_;  // ascending by count
  double drift_ = 1;             // what all points have in common to multiply with
};

}  // namespace clover::infer
