#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace clover::infer {

/// Seconds as a function of a count (rows of a pass, sequences of a draft), learnt from timings.  Each count
/// seen has a running mean, made non-decreasing along the counts; between and beyond them the curve is
/// linear, and a count seen for the first time starts from there.  Outliers hardly move it; a lasting change
/// (longer contexts, a warmer machine) moves all of it.
class CostCurve {
 public:
  struct Point {
    int64_t count;
    double seconds;  // running mean
    double timings;  // how often it was timed, times 0.9 for each run that did not time it
  };

  CostCurve() = default;
  /// `known`: known() of an earlier run, ascending by count.
  explicit CostCurve(std::span<const Point> known);

  /// Why a count was timed.  One that was chosen as the cheapest of many may only have had the luckiest
  /// timing, so its neighbours weigh more than its first timings.
  enum class Chosen { for_its_cost, to_measure };
  void observe(int64_t count, double seconds, Chosen chosen = Chosen::for_its_cost);

  /// The machine is slower by this factor than when the curve was learnt.
  void rescale(double factor);
  /// Gives the next timings of `count` more weight, because it was not timed for long.
  void doubt(int64_t count);

  /// 0 while nothing was observed; the cheapest point's value below it.
  double at(int64_t count) const;

  /// Whether `count` was timed so often.
  bool knows(int64_t count, double timings = 1) const;
  int64_t points() const { return static_cast<int64_t>(points_.size()); }
  std::vector<Point> known() const;

 private:
  struct Running : Point {  // seconds in units of drift_
    double weight = 1;      // observations that the mean counts as
    bool timed = false;     // by this object
    double monotone = 0;    // `seconds` made non-decreasing along the curve
    int outlier_side = 0;   // the last timing was an outlier above the mean (1), below it (-1) or none (0)
  };
  void move(Running& point, double seconds);
  void make_monotone();

  std::vector<Running> points_;  // ascending by count
  double drift_ = 1;             // factor common to all points
};

}  // namespace clover::infer
