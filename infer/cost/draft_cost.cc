#include "infer/cost/draft_cost.h"

#include <algorithm>
#include <iterator>

namespace clover::infer {
namespace {

// The first trial_drafts have all levels and half of them in turn.  Later one of every trial_interval drafts
// has all levels, and one has half of them.
constexpr int64_t trial_drafts = 6, trial_interval = 64;
// The means of a level are over at most level_memory drafts.  After more than old_level drafts without the
// level they count as only old_level_memory drafts.
constexpr double level_memory = 64, old_level_memory = 4;
constexpr int64_t old_level = 16;
// Another number of levels replaces the best one so far only if it is better by this factor, because the
// estimate for the best one is more reliable.
constexpr double min_improvement = 1.01;

/// Adds `value` to a mean that counts as the mean of `count` values, this one included.
void update_mean(double& mean, double value, double count) {
  mean += (value - mean) / count;
}

}  // namespace

void DraftCost::observe(int64_t sequences, int64_t levels, double seconds) {
  by_levels_[levels].observe(sequences, seconds);
}

void DraftCost::observe_levels(int64_t drafted, std::span<const Level> levels) {
  if (levels_.size() < levels.size()) levels_.resize(levels.size());
  for (size_t i = 0; i < levels.size(); ++i) {
    MeanLevel& mean = levels_[i];
    if (drafts_ - mean.last_seen > old_level) mean.drafts = std::min(mean.drafts, old_level_memory);
    mean.last_seen = drafts_;
    mean.drafts = std::min(mean.drafts + 1, level_memory);
    update_mean(mean.tokens, levels[i].tokens / static_cast<double>(drafted), mean.drafts);
    update_mean(mean.rows, levels[i].rows / static_cast<double>(drafted), mean.drafts);
  }
}

double DraftCost::expected_seconds(int64_t sequences, int64_t levels) const {
  if (by_levels_.empty()) return 0;
  const auto above = by_levels_.lower_bound(levels);
  const auto seconds = [sequences](auto entry) { return entry->second.expected_seconds(sequences); };
  const auto scaled = [&](auto entry) {
    return seconds(entry) * static_cast<double>(levels + 1) / static_cast<double>(entry->first + 1);
  };
  if (above == by_levels_.begin()) return scaled(above);
  const auto below = std::prev(above);
  if (above == by_levels_.end()) return scaled(below);
  const double share =
      static_cast<double>(levels - below->first) / static_cast<double>(above->first - below->first);
  return seconds(below) + share * (seconds(above) - seconds(below));
}

bool DraftCost::has_timings(int64_t sequences, double timings) const {
  return std::ranges::any_of(by_levels_,
                             [&](const auto& entry) { return entry.second.has_timings(sequences, timings); });
}

/// Expected tokens per second of a step with a draft of `levels` levels.  A level that was never drafted is
/// assumed to yield as much as the deepest one that was, so that it is tried.
double DraftCost::tokens_per_second(const Step& step, int64_t levels) const {
  Level sum;
  for (int64_t i = 0; i < levels && !levels_.empty(); ++i) {
    const MeanLevel& mean = levels_[std::min<size_t>(i, levels_.size() - 1)];
    sum.tokens += mean.tokens;
    sum.rows += mean.rows;
  }
  const auto drafted = static_cast<double>(step.drafted);
  return (static_cast<double>(step.sequences) + drafted * sum.tokens) /
         (step.plain_seconds + expected_seconds(step.drafted, levels) +
          drafted * sum.rows * step.seconds_per_row);
}

int64_t DraftCost::best_levels(const Step& step) const {
  int64_t best = best_levels_ == 0 ? max_levels_ : std::min(best_levels_, max_levels_);
  double rate_to_beat = tokens_per_second(step, best) * min_improvement;
  for (int64_t levels = 1; levels <= max_levels_; ++levels) {
    const double other = tokens_per_second(step, levels);
    if (other <= rate_to_beat) continue;
    rate_to_beat = other;
    best = levels;
  }
  return best;
}

int64_t DraftCost::next_levels(const Step& step, int64_t max_levels) {
  max_levels_ = max_levels;
  const int64_t half = (max_levels + 1) / 2, turn = ++drafts_ % trial_interval;
  if (levels_.empty() || turn == 0) return last_levels_ = max_levels;
  if (drafts_ <= trial_drafts) return last_levels_ = drafts_ % 2 == 0 ? half : max_levels;
  best_levels_ = best_levels(step);
  return last_levels_ = turn == trial_interval / 2 ? half : best_levels_;
}

double DraftCost::best_over_last(const Step& step) const {
  if (levels_.empty()) return 1;
  return std::max(1.0, tokens_per_second(step, best_levels(step)) / tokens_per_second(step, last_levels_));
}

}  // namespace clover::infer
