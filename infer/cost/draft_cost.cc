#include "infer/cost/draft_cost.h"

#include <algorithm>
#include <iterator>

namespace clover::infer {
namespace {

// The first drafts have all levels and half of them in turn.  Later, of so many drafts one has all levels and
// one has half of them.
constexpr int64_t first_drafts = 6, drafts_between_full_ones = 64;
constexpr double level_memory = 64;  // steps that the mean yield of a level remembers
constexpr double batch_memory = 8;   // steps that the mean batch and its plain pass remember
// Another number of levels than the best so far must be better by this factor, because that one is better
// known.
constexpr double better_needed = 1.01;

void move_mean(double& mean, double value, double steps) {
  mean += (value - mean) / steps;
}

}  // namespace

void DraftCost::observe(int64_t sequences, int64_t levels, double seconds) {
  by_levels_[levels].observe(sequences, seconds);
}

void DraftCost::observe(const Yield& yield) {
  if (levels_.size() < yield.levels.size()) levels_.resize(yield.levels.size());
  for (size_t i = 0; i < yield.levels.size(); ++i) {
    MeanLevel& level = levels_[i];
    level.steps = std::min(level.steps + 1, level_memory);
    move_mean(level.tokens, yield.levels[i].tokens / yield.drafted, level.steps);
    move_mean(level.seconds, yield.levels[i].seconds / yield.drafted, level.steps);
  }
  steps_ = std::min(steps_ + 1, batch_memory);
  move_mean(sequences_, yield.sequences / yield.drafted, steps_);
  move_mean(plain_seconds_, yield.plain_seconds / yield.drafted, steps_);
}

double DraftCost::at(int64_t sequences, int64_t levels) const {
  if (by_levels_.empty()) return 0;
  const auto above = by_levels_.lower_bound(levels);
  const auto seconds = [sequences](auto timed) { return timed->second.at(sequences); };
  const auto scaled = [&](auto timed) {
    return seconds(timed) * static_cast<double>(levels + 1) / static_cast<double>(timed->first + 1);
  };
  if (above == by_levels_.begin()) return scaled(above);
  const auto below = std::prev(above);
  if (above == by_levels_.end()) return scaled(below);
  const double share =
      static_cast<double>(levels - below->first) / static_cast<double>(above->first - below->first);
  return seconds(below) + share * (seconds(above) - seconds(below));
}

bool DraftCost::knows(int64_t sequences, double timings) const {
  return std::ranges::any_of(by_levels_,
                             [&](const auto& timed) { return timed.second.knows(sequences, timings); });
}

/// Expected of a step that drafts so many levels for `sequences` sequences.
double DraftCost::tokens_a_second(int64_t sequences, int64_t levels) const {
  double tokens = sequences_;
  double seconds = plain_seconds_ + at(sequences, levels) / static_cast<double>(sequences);
  for (int64_t i = 0; i < std::min(levels, std::ssize(levels_)); ++i) {
    tokens += levels_[i].tokens;
    seconds += levels_[i].seconds;
  }
  return tokens / seconds;
}

int64_t DraftCost::best_levels(int64_t sequences) const {
  int64_t best = best_levels_ == 0 ? max_levels_ : std::min(best_levels_, max_levels_);
  double rate = tokens_a_second(sequences, best) * better_needed;
  for (int64_t levels = 1; levels <= max_levels_; ++levels) {
    const double other = tokens_a_second(sequences, levels);
    if (other <= rate) continue;
    rate = other;
    best = levels;
  }
  return best;
}

int64_t DraftCost::next_levels(int64_t sequences, int64_t max_levels) {
  max_levels_ = max_levels;
  const int64_t half = (max_levels + 1) / 2, turn = ++drafts_ % drafts_between_full_ones;
  if (steps_ == 0 || turn == 0) return last_levels_ = max_levels;
  if (drafts_ <= first_drafts) return last_levels_ = drafts_ % 2 == 0 ? half : max_levels;
  best_levels_ = best_levels(sequences);
  return last_levels_ = turn == drafts_between_full_ones / 2 ? half : best_levels_;
}

double DraftCost::best_over_last(int64_t sequences) const {
  if (steps_ == 0) return 1;
  return std::max(
      1.0, tokens_a_second(sequences, best_levels(sequences)) / tokens_a_second(sequences, last_levels_));
}

}  // namespace clover::infer
