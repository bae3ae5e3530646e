#include "infer/tree/suffix_matcher.h"

#include <algorithm>
#include <utility>

namespace clover::infer {
namespace {

// Places compared, and tokens at each: they bound the time of a step on repetitive text.
constexpr int64_t most_places = 64, longest_match = 32;

constexpr int64_t most_answered = 500'000;  // tokens before the older half is forgotten
constexpr int64_t between_answers = -1;     // no token's id

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

SuffixMatcher::Guess SuffixMatcher::after(std::span<const int64_t> text, int64_t most) const {
  Guess guess;
  const int64_t last = std::ssize(text) - 1, end = std::ssize(ids_);
  if (last < 1 || most < 1) return guess;
  const auto newest = newest_.find(pair_of(text[last - 1], text[last]));
  if (newest == newest_.end()) return guess;
  int64_t best = -1, places = most_places;
  for (int32_t place = newest->second; place >= 0 && places-- > 0; place = earlier_[place]) {
    if (place + 1 == end || ids_[place + 1] == between_answers) continue;  // nothing follows there
    int64_t match = 2;
    while (match < longest_match && match <= std::min<int64_t>(place, last) &&
           ids_[place - match] == text[last - match])
      ++match;
    if (match <= guess.match) continue;
    guess.match = match;
    best = place;
    if (match == longest_match) break;
  }
  if (best >= 0) guess.ids.assign(ids_.begin() + best + 1, ids_.begin() + std::min(end, best + 1 + most));
  return guess;
}

void AnswerMatcher::append(std::span<const int64_t> answer) {
  if (std::ssize(newer_.ids()) > most_answered) older_ = std::exchange(newer_, {});
  newer_.append(answer);
  newer_.append({&between_answers, 1});
}

SuffixMatcher::Guess AnswerMatcher::after(std::span<const int64_t> text, int64_t most) const {
  SuffixMatcher::Guess guess = newer_.after(text, most), old = older_.after(text, most);
  if (old.match > guess.match) guess = std::move(old);
  guess.ids.erase(std::find(guess.ids.begin(), guess.ids.end(), between_answers), guess.ids.end());
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
