#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "infer/tree/candidate_tree.h"

namespace clover::infer {

/// Guesses without a drafter (prompt lookup, Saxena 2023; SuffixDecoding, arXiv 2411.04975).  It holds a
/// sequence of tokens.  Where the last tokens of a text occur in it, the tokens that follow them there are
/// the guess.
class SuffixMatcher {
 public:
  /// Appends tokens to the sequence.
  void append(std::span<const int64_t> ids);

  struct Guess {
    std::vector<int64_t> ids;  // the tokens that followed, in order
    int64_t match = 0;         // how many of the last tokens of the text matched: 2 or more; 0: no guess
  };
  /// A guess of at most `max_tokens` tokens that follow `text`.  It is copied from the place in this sequence
  /// that matches the longest suffix of `text`, the latest of several such places.  Empty where not even the
  /// last two tokens of `text` occur.
  Guess guess_after(std::span<const int64_t> text, int64_t max_tokens) const;
  /// The same for the text of this sequence itself.
  Guess guess(int64_t max_tokens) const { return guess_after(ids_, max_tokens); }

  std::span<const int64_t> ids() const { return ids_; }

 private:
  std::vector<int64_t> ids_;
  // For each i the largest j < i with the same pair of tokens: ids_[j - 1], ids_[j] equal ids_[i - 1],
  // ids_[i]; -1: none.
  std::vector<int32_t> previous_occurrence_;
  /// Pair of tokens -> the largest index of its second token.
  std::unordered_map<uint64_t, int32_t> last_occurrence_;
};

/// The latest answers of a job, 500 thousand to a million tokens, from which guesses for later answers are
/// copied.
class AnswerMatcher {
 public:
  void append(std::span<const int64_t> answer);
  /// As SuffixMatcher::guess_after; no guess runs from one answer into another.
  SuffixMatcher::Guess guess_after(std::span<const int64_t> text, int64_t max_tokens) const;

 private:
  SuffixMatcher newer_, older_;  // older_ is replaced by newer_ when that is full
};

/// Adds the guess to the tree as a path from its root; existing nodes with the same tokens are shared.  New
/// nodes get a joint probability that is larger for longer matches; CostModel::calibrated_probability
/// corrects it.
void add_guess(CandidateTree& tree, const SuffixMatcher::Guess& guess);

}  // namespace clover::infer
