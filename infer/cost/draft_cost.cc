#include "infer/cost/draft_cost.h"

#include <algorithm>
#include <iterator>

namespace clover::infer {
namespace {

// The first drafts have all levels and half of them in turn; then two of so many.
constexpr int64_t first_drafts = 6, drafts_between_full_ones = 64;
constexpr double memory = 64;           // drafts whose yield is remembered
constexpr double batch_memory = 8;      // .. and whose batch is
constexpr double better_needed = 1.01;  // for another depth than the last, which is better known

void move(double& mean, double value, double& weight, double longest) {
  weight = std::min(weight + 1, longest);
  mean += (value - mean) / weight;
}

}  // namespace

void DraftCost::observe(int64_t sequences, int64_t levels, double seconds) {
  by_levels_[levels].observe(sequences, seconds);
}

void DraftCost::observe(const Yield& yield) {
  if (levels_.size() < yield.levels.size()) levels_.resize(yield.levels.size());
  for (size_t i = 0; i < yield.levels.size(); ++i) {
    double weight = levels_[i].weight;
    move(levels_[i].tokens, yield.levels[i].tokens / yield.drafted, weight, memory);
    move(levels_[i].seconds, yield.levels[i].seconds / yield.drafted, levels_[i].weight, memory);
  }
  double weight = weight_;
  move(sequences_, yield.sequences / yield.drafted, weight, batch_memory);
  move(plain_seconds_, yield.plain_seconds / yield.drafted, weight_, batch_memory);
}

double DraftCost::at(int64_t sequences, int64_t levels) const {
  if (by_levels_.empty()) return 0;
  const auto above = by_levels_.lower_bound(levels);
  const auto seconds = [sequences](auto known) { return known->second.at(sequences); };
  const auto scaled = [&](auto known) {
    return seconds(known) * static_cast<double>(levels + 1) / static_cast<double>(known->first + 1);
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
                             [&](const auto& known) { return known.second.knows(sequences, timings); });
}

// Of a step in which `sequences` are drafted for.
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
  int64_t best = chosen_ == 0 ? most_ : std::min(chosen_, most_);
  double rate = tokens_a_second(sequences, best) * better_needed;
  for (int64_t levels = 1; levels <= most_; ++levels) {
    const double other = tokens_a_second(sequences, levels);
    if (other <= rate) continue;
    rate = other;
    best = levels;
  }
  return best;
}

int64_t DraftCost::next_levels(int64_t sequences, int64_t most) {
  most_ = most;
  const int64_t half = (most + 1) / 2, turn = ++drafts_ % drafts_between_full_ones;
  if (weight_ == 0 || turn == 0) return last_ = most;
  if (drafts_ <= first_drafts) return last_ = drafts_ % 2 == 0 ? half : most;
  chosen_ = best_levels(sequences);
  return last_ = turn == drafts_between_full_ones / 2 ? half : chosen_;
}

double DraftCost::best_over_last(int64_t sequences) const {
  if (weight_ == 0) return 1;
  return std::max(1.0,
                  tokens_a_second(sequences, best_levels(sequences)) / tokens_a_second(sequences, last_));
}

}  // namespace clover::infer
