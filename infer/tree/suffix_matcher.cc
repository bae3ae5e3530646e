#include "infer/tree/suffix_matcher.h"

#include <algorithm>
#include <utility>

namespace clover::infer {
namespace {

// Most places compared for a guess, and most tokens compared at each.  They bound the time on repetitive
// text.
constexpr int64_t max_places = 64, max_match = 32;

constexpr int64_t max_answer_tokens = 500'000;  // of newer_; when it has more, it replaces older_
constexpr int64_t answer_separator = -1;        // not the id of any token

/// The key of a pair of token ids in last_occurrence_.
uint64_t pair_of(int64_t first, int64_t second) {
  return static_cast<uint64_t>(first) << 32 | static_cast<uint64_t>(second);
}

/// Assumed probability that the token after a match of so many tokens is accepted: 0.33, 0.5, 0.6, .. after
/// 2, 3, 4, .. tokens.
double acceptance_after_match(int64_t match) {
  return 1 - 2.0 / static_cast<double>(match + 1);
}

}  // namespace

void SuffixMatcher::append(std::span<const int64_t> ids) {
  for (const int64_t id : ids) {
    const int32_t place = static_cast<int32_t>(ids_.size());
    ids_.push_back(id);
    previous_occurrence_.push_back(-1);
    if (place == 0) continue;
    const auto [newest, inserted] = last_occurrence_.try_emplace(pair_of(ids_[place - 1], id), place);
    if (inserted) continue;
    previous_occurrence_[place] = newest->second;
    newest->second = place;
  }
}

SuffixMatcher::Guess SuffixMatcher::guess_after(std::span<const int64_t> text, int64_t max_tokens) const {
  Guess guess;
  const int64_t last = std::ssize(text) - 1, end = std::ssize(ids_);
  if (last < 1 || max_tokens < 1) return guess;
  const auto newest = last_occurrence_.find(pair_of(text[last - 1], text[last]));
  if (newest == last_occurrence_.end()) return guess;
  int64_t best = -1, places_left = max_places;
  for (int32_t place = newest->second; place >= 0 && places_left-- > 0; place = previous_occurrence_[place]) {
    if (place + 1 == end || ids_[place + 1] == answer_separator) continue;  // nothing follows there
    int64_t match = 2;
    while (match < max_match && match <= std::min<int64_t>(place, last) &&
           ids_[place - match] == text[last - match])
      ++match;
    if (match <= guess.match) continue;
    guess.match = match;
    best = place;
    if (match == max_match) break;
  }
  if (best >= 0)
    guess.ids.assign(ids_.begin() + best + 1, ids_.begin() + std::min(end, best + 1 + max_tokens));
  return guess;
}

void AnswerMatcher::append(std::span<const int64_t> answer) {
  if (std::ssize(newer_.ids()) > max_answer_tokens) older_ = std::exchange(newer_, {});
  newer_.append(answer);
  newer_.append({&answer_separator, 1});
}

SuffixMatcher::Guess AnswerMatcher::guess_after(std::span<const int64_t> text, int64_t max_tokens) const {
  SuffixMatcher::Guess guess = newer_.guess_after(text, max_tokens),
                       old = older_.guess_after(text, max_tokens);
  if (old.match > guess.match) guess = std::move(old);
  guess.ids.erase(std::find(guess.ids.begin(), guess.ids.end(), answer_separator), guess.ids.end());
  return guess;
}

void add_guess(CandidateTree& tree, const SuffixMatcher::Guess& guess) {
  int32_t node = 0;
  double joint = 1;
  int64_t match = guess.match;
  for (const int64_t id : guess.ids) {
    joint *= acceptance_after_match(match++);
    const int32_t existing = tree.child(node, id);
    node = existing >= 0 ? existing : tree.add(id, node, static_cast<float>(joint), Proposer::suffix);
  }
}

}  // namespace clover::infer
