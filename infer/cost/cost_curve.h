#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace clover::infer {

/// Seconds as a function of a count (rows of a pass, sequences of a draft), learnt from timings.  Each timed
/// count is a point with a running mean; the means are then made non-decreasing along the counts.  Between
/// and beyond the points the curve is linear, and a new count between two points starts with the value there.
/// Outliers hardly move the curve; a lasting change (longer contexts, a hotter machine) moves all of it.
class CostCurve {
 public:
  struct Point {
    int64_t count;
    double seconds;  // running mean
    double timings;  // how often it was timed; multiplied by 0.9 for each run that did not time it
  };

  CostCurve() = default;
  /// `learnt`: means() of an earlier run, ascending by count.
  explicit CostCurve(std::span<const Point> learnt);

  /// Why a count was timed: the cost model chose it as the cheapest of many, or calibration measured it.  A
  /// count that was chosen by cost may only have had a lucky timing, so a new point starts with the value
  /// that its neighbours predict.
  enum class Reason { chosen_by_cost, calibration };
  /// `count` took `seconds`.
  void observe(int64_t count, double seconds, Reason reason = Reason::chosen_by_cost);

  /// The machine is slower by this factor than when the curve was learnt.
  void rescale(double factor);
  /// Lowers the weight of the point at `count`, whose last timing is old, so that the next timings change it
  /// more.
  void mark_stale(int64_t count);

  /// Seconds at `count`.  0 while nothing was observed; below the first point the value of that point.
  double expected_seconds(int64_t count) const;

  /// Whether `count` was timed at least `timings` times.
  bool has_timings(int64_t count, double timings = 1) const;
  /// The number of points.
  int64_t points() const { return static_cast<int64_t>(points_.size()); }
  /// What was learnt, ascending by count, for a later run.
  std::vector<Point> means() const;

 private:
  /// A point whose `seconds` are divided by drift_.
  struct RunningPoint : Point {
    double weight = 1;     // how many observations the mean counts as
    bool timed = false;    // in this run
    double monotone = 0;   // `seconds`, made non-decreasing along the curve
    int outlier_side = 0;  // the last timing was an outlier above the mean (1), below it (-1) or none (0)
  };
  void update(RunningPoint& point, double seconds);
  void make_monotone();

  std::vector<RunningPoint> points_;  // ascending by count
  double drift_ = 1;                  // how much slower the machine is than the points say: a common factor
};

}  // namespace clover::infer
