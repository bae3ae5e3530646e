#include "infer/cost_curve.h"

#include <algorithm>

namespace clover::infer {
namespace {

constexpr double memory = 64;        // observations a point remembers
constexpr double drift_memory = 16;  // observations the common drift remembers
constexpr double settled = 8;        // observations before a point has a say in the drift
constexpr double outlier = 2;        // a timing further off than this factor counts as this far

}  // namespace

void CostCurve::observe(int64_t count, double seconds) {
  if (count < 1 || !(seconds > 0)) return;
  const auto place =
      std::lower_bound(points_.begin(), points_.end(), count,
                       [](const Point& point, int64_t wanted) { return point.count < wanted; });
  if (place == points_.end() || place->count != count) {
    points_.insert(place, {count, seconds / drift_, 1, 0, 0});
  } else {
    const double ratio = seconds / (place->seconds * drift_);
    const int side = ratio > outlier ? 1 : ratio < 1 / outlier ? -1 : 0;
    const bool again = side != 0 && side == place->far_side;  // once is a hiccup, twice is how things are now
    place->far_side = side;
    if (again || (place->weight == 1 && side < 0)) {  // or what was known is a cold start
      place->seconds = seconds / drift_;
      place->weight = 1;
    } else {
      const double bounded = std::clamp(ratio, 1 / outlier, outlier);
      if (place->weight >= settled) drift_ *= 1 + (bounded - 1) / drift_memory;
      place->weight = std::min(place->weight + 1, memory);
      place->seconds *= 1 + (bounded - 1) / place->weight;
    }
  }
  make_monotone();
}

// Pools neighbours that fall until none does: the closest non-decreasing curve by weighted squares.
void CostCurve::make_monotone() {
  struct Pool {
    double mean, weight;
    size_t size;
  };
  std::vector<Pool> pools;
  for (const Point& point : points_) {
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
  const auto right =
      std::lower_bound(points_.begin(), points_.end(), count,
                       [](const Point& point, int64_t wanted) { return point.count < wanted; });
  if (right == points_.begin()) return right->monotone * drift_;
  const Point& left = *(right - 1);
  const auto slope = [](const Point& a, const Point& b) {
    return (b.monotone - a.monotone) / static_cast<double>(b.count - a.count);
  };
  double rise = 0;  // beyond the last point: as steep as the whole curve or its end, whichever is more
  if (right != points_.end())
    rise = slope(left, *right);
  else if (points_.size() > 1)
    rise = std::max(slope(points_.front(), left), slope(*(points_.end() - 2), left));
  return (left.monotone + rise * static_cast<double>(count - left.count)) * drift_;
}

bool CostCurve::knows(int64_t count) const {
  return std::any_of(points_.begin(), points_.end(),
                     [count](const Point& point) { return point.count == count; });
}

}  // namespace clover::infer
