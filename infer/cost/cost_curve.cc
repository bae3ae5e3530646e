#include "infer/cost/cost_curve.h"

#include <algorithm>

namespace clover::infer {
namespace {

constexpr double max_point_weight = 64;     // most observations that a point's mean counts as
constexpr double drift_memory = 16;         // observations over which the drift is averaged
constexpr double min_weight_for_drift = 8;  // observations of a point before it moves the drift
constexpr double fading = 0.9;  // factor on a point's `timings` for each run that does not time it
// A new point between others starts with the value that these predict, and with the weight of so many
// observations.  Otherwise the cheapest of many counts would be the one with the luckiest timing.
constexpr double initial_weight = 4;
constexpr double outlier_factor = 2;  // a timing further off than this factor counts as off by this factor

/// A timing divided by what was expected, limited to the range that is no outlier.
double bounded(double ratio) {
  return std::clamp(ratio, 1 / outlier_factor, outlier_factor);
}

}  // namespace

CostCurve::CostCurve(std::span<const Point> learnt) {
  for (const Point& point : learnt) {
    const double timings = std::min(point.timings, min_weight_for_drift);
    points_.push_back({{point.count, point.seconds, timings}, std::max(timings, 1.0)});
  }
  make_monotone();
}

std::vector<CostCurve::Point> CostCurve::means() const {
  std::vector<Point> points;
  for (const RunningPoint& point : points_)
    points.push_back(
        {point.count, point.seconds * drift_, point.timed ? point.timings : point.timings * fading});
  return points;
}

void CostCurve::rescale(double factor) {
  drift_ *= factor;
}

void CostCurve::observe(int64_t count, double seconds, Reason reason) {
  if (count < 1 || !(seconds > 0)) return;
  const auto place = std::ranges::lower_bound(points_, count, {}, &Point::count);
  const bool between_points = place != points_.begin() && place != points_.end();
  if (place != points_.end() && place->count == count) {
    update(*place, seconds);
  } else if (between_points && reason == Reason::chosen_by_cost) {
    const double expected = expected_seconds(count) / drift_;
    update(*points_.insert(place, {{count, expected, 0}, initial_weight}), seconds);
  } else {
    points_.insert(place, {{count, seconds / drift_, 1}, 1, true});
  }
  make_monotone();
}

void CostCurve::update(RunningPoint& point, double seconds) {
  point.timed = true;
  ++point.timings;
  const double ratio = seconds / (point.seconds * drift_);
  const int side = ratio > outlier_factor ? 1 : ratio < 1 / outlier_factor ? -1 : 0;
  // One outlier is an accident; a second one on the same side is a change.
  const bool changed = side != 0 && side == point.outlier_side;
  point.outlier_side = side;
  const bool was_cold_start = point.weight == 1 && side < 0;  // the first timing was far too slow
  if (changed || was_cold_start) {
    point.seconds = seconds / drift_;
    point.weight = point.timings = 1;
    return;
  }
  if (point.weight >= min_weight_for_drift) drift_ *= 1 + (bounded(ratio) - 1) / drift_memory;
  point.weight = std::min(point.weight + 1, max_point_weight);
  point.seconds *= 1 + (bounded(ratio) - 1) / point.weight;
}

// Sets `monotone` by the pool-adjacent-violators algorithm: the non-decreasing curve with the least weighted
// squared error.
void CostCurve::make_monotone() {
  struct Pool {
    double mean, weight;
    size_t size;
  };
  std::vector<Pool> pools;
  for (const RunningPoint& point : points_) {
    pools.push_back({point.seconds, point.weight, 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean > pools.back().mean) {
      const Pool right = pools.back();
      pools.pop_back();
      Pool& left = pools.back();
      const double weight = left.weight + right.weight;
      left = {(left.mean * left.weight + right.mean * right.weight) / weight, weight, left.size + right.size};
    }
  }
  size_t i = 0;
  for (const Pool& pool : pools)
    for (size_t in_pool = 0; in_pool < pool.size; ++in_pool) points_[i++].monotone = pool.mean;
}

double CostCurve::expected_seconds(int64_t count) const {
  if (points_.empty()) return 0;
  const auto right = std::ranges::lower_bound(points_, count, {}, &Point::count);
  if (right == points_.begin()) return right->monotone * drift_;
  const RunningPoint& left = *(right - 1);
  const auto slope = [](const RunningPoint& a, const RunningPoint& b) {
    return (b.monotone - a.monotone) / static_cast<double>(b.count - a.count);
  };
  // Seconds per count.  After the last point: the slope of the whole curve or of its last piece, whichever is
  // more.
  double rise = 0;
  if (right != points_.end())
    rise = slope(left, *right);
  else if (points_.size() > 1)
    rise = std::max(slope(points_.front(), left), slope(*(points_.end() - 2), left));
  return (left.monotone + rise * static_cast<double>(count - left.count)) * drift_;
}

void CostCurve::mark_stale(int64_t count) {
  constexpr double max_weight = 2;
  for (RunningPoint& point : points_)
    if (point.count == count) point.weight = std::min(point.weight, max_weight);
}

bool CostCurve::has_timings(int64_t count, double timings) const {
  return std::any_of(points_.begin(), points_.end(), [&](const RunningPoint& point) {
    return point.count == count && point.timings >= timings;
  });
}

}  // namespace clover::infer
