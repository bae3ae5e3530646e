#include "infer/suffix_matcher.h"

#include <algorithm>

namespace clover::infer {
namespace {

// Places looked at, and tokens compared at each: what a step may spend on text that repeats without end.
constexpr int64_t most_places = 64, longest_match = 32;

uint64_t pair_of(int64_t first, int64_t second) {
  return static_cast<uint64_t>(first) << 32 | static_cast<uint64_t>(second);
}

/// 0.33, 0.5, 0.6, .. for matches of 2, 3, 4 tokens.
double trust(int64_t match) {
  return 1 - 2.0 / static_cast<double>(match + 1);
}

}  // namespace

void SuffixMatcher::append(std::span<const int64_t> ids) {
  for (const int64_t id : ids) {
    const int32_t place = static_cast<int32_t>(ids_.size());
    ids_.push_back(id);
    earlier_.push_back(-1);
    if (place == 0) continue;
    const auto [newest, first] = newest_.try_emplace(pair_of(ids_[place - 1], id), place);
    if (first) continue;
    earlier_[place] = newest->second;
    newest->second = place;
  }
}

SuffixMatcher::Guess SuffixMatcher::guess(int64_t most) const {
  Guess guess;
  if (ids_.empty() || most < 1) return guess;
  const int64_t last = std::ssize(ids_) - 1;
  int64_t best = -1;
  int64_t places = most_places;
  for (int32_t place = earlier_[last]; place >= 0 && places-- > 0; place = earlier_[place]) {
    int64_t match = 2;
    while (match < longest_match && match <= place && ids_[place - match] == ids_[last - match]) ++match;
    if (match <= guess.match) continue;
    guess.match = match;
    best = place;
    if (match == longest_match) break;
  }
  if (best < 0) return guess;
  const int64_t end = std::min(last + 1, best + 1 + most);
  guess.ids.assign(ids_.begin() + best + 1, ids_.begin() + end);
  return guess;
}

void graft(CandidateTree& tree, const SuffixMatcher::Guess& guess) {
  int32_t node = 0;
  double joint = 1;
  int64_t match = guess.match;
  for (const int64_t id : guess.ids) {
    joint *= trust(match++);
    const int32_t there = tree.child(node, id);
    node = there >= 0 ? there : tree.add(id, node, static_cast<float>(joint), Proposer::suffix);
  }
}

}  // namespace clover::infer
