#include "infer/cost/cost_curve.h"

#include <algorithm>

namespace clover::infer {
namespace {

constexpr double memory = 64;        // observations a point remembers
constexpr double drift_memory = 16;  // observations the common drift remembers
constexpr double least_weight = 8;   // observations before a point moves the drift
constexpr double fading = 0.9;       // of the timings of a count, with each run that does not time it
// A new count between others starts from them with the weight of so many observations; else the cheapest of
// many counts would be the one with the luckiest timing.
constexpr double initial_weight = 4;
constexpr double outlier = 2;  // a timing further off than this factor counts as this far

double bounded(double ratio) {
  return std::clamp(ratio, 1 / outlier, outlier);
}

}  // namespace

CostCurve::CostCurve(std::span<const Point> known) {
  for (const Point& point : known) {
    const double timings = std::min(point.timings, least_weight);
    points_.push_back({{point.count, point.seconds, timings}, std::max(timings, 1.0)});
  }
  make_monotone();
}

std::vector<CostCurve::Point> CostCurve::known() const {
  std::vector<Point> points;
  for (const Running& point : points_)
    points.push_back(
        {point.count, point.seconds * drift_, point.timed ? point.timings : point.timings * fading});
  return points;
}

void CostCurve::rescale(double factor) {
  drift_ *= factor;
}

void CostCurve::observe(int64_t count, double seconds, Chosen chosen) {
  if (count < 1 || !(seconds > 0)) return;
  const auto place = std::ranges::lower_bound(points_, count, {}, &Point::count);
  const bool between = place != points_.begin() && place != points_.end();
  if (place != points_.end() && place->count == count) {
    move(*place, seconds);
  } else if (between && chosen == Chosen::for_its_cost) {
    const double expected = at(count) / drift_;
    move(*points_.insert(place, {{count, expected, 0}, initial_weight}), seconds);
  } else {
    points_.insert(place, {{count, seconds / drift_, 1}, 1, true});
  }
  make_monotone();
}

void CostCurve::move(Running& point, double seconds) {
  point.timed = true;
  ++point.timings;
  const double ratio = seconds / (point.seconds * drift_);
  const int side = ratio > outlier ? 1 : ratio < 1 / outlier ? -1 : 0;
  const bool again = side != 0 && side == point.outlier_side;  // once is an accident, twice a change
  point.outlier_side = side;
  if (again || (point.weight == 1 && side < 0)) {  // or the first timing was a cold start
    point.seconds = seconds / drift_;
    point.weight = point.timings = 1;
    return;
  }
  if (point.weight >= least_weight) drift_ *= 1 + (bounded(ratio) - 1) / drift_memory;
  point.weight = std::min(point.weight + 1, memory);
  point.seconds *= 1 + (bounded(ratio) - 1) / point.weight;
}

// Pool-adjacent-violators: the non-decreasing curve of least weighted squared error.
void CostCurve::make_monotone() {
  struct Pool {
    double mean, weight;
    size_t size;
  };
  std::vector<Pool> pools;
  for (const Running& point : points_) {
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

double CostCurve::at(int64_t count) const {
  if (points_.empty()) return 0;
  const auto right = std::ranges::lower_bound(points_, count, {}, &Point::count);
  if (right == points_.begin()) return right->monotone * drift_;
  const Running& left = *(right - 1);
  const auto slope = [](const Running& a, const Running& b) {
    return (b.monotone - a.monotone) / static_cast<double>(b.count - a.count);
  };
  double rise = 0;  // beyond the last point: as steep as the whole curve or its end, whichever is more
  if (right != points_.end())
    rise = slope(left, *right);
  else if (points_.size() > 1)
    rise = std::max(slope(points_.front(), left), slope(*(points_.end() - 2), left));
  return (left.monotone + rise * static_cast<double>(count - left.count)) * drift_;
}

void CostCurve::doubt(int64_t count) {
  constexpr double weight_in_doubt = 2;
  for (Running& point : points_)
    if (point.count == count) point.weight = std::min(point.weight, weight_in_doubt);
}

bool CostCurve::knows(int64_t count, double timings) const {
  return std::any_of(points_.begin(), points_.end(),
                     [&](const Running& point) { return point.count == count && point.timings >= timings; });
}

}  // namespace clover::infer
