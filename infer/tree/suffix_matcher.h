#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "infer/tree/candidate_tree.h"

namespace clover::infer {

/// Guesses without a drafter: where a sequence's last tokens occurred earlier in it, the tokens that followed
/// then may follow again (prompt lookup, Saxena 2023; SuffixDecoding, arXiv 2411.04975).
class SuffixMatcher {
 public:
  /// Appends tokens to the sequence.
  void append(std::span<const int64_t> ids);

  struct Guess {
    std::vector<int64_t> ids;  // the tokens that followed, in order
    int64_t match = 0;         // how many of the last tokens matched, 2 or more
  };
  /// Guesses what follows `text`: at most `most` tokens from behind the place in this sequence that matches
  /// the longest run of its last tokens, the latest of several such places.  Empty where not even the last
  /// two tokens match.
  Guess after(std::span<const int64_t> text, int64_t most) const;
  /// The same for this sequence's own end.
  Guess guess(int64_t most) const { return after(ids_, most); }

  std::span<const int64_t> ids() const { return ids_; }

 private:
  std::vector<int64_t> ids_;
  std::vector<int32_t> earlier_;  // [i]: the last j < i with the same pair ids_[j - 1], ids_[j]; -1: none
  std::unordered_map<uint64_t, int32_t> newest_;  // pair of tokens -> the last index of its second one
};

/// The answers of a job so far, to copy guesses from in later ones: the last 500 thousand to million tokens.
class AnswerMatcher {
 public:
  void append(std::span<const int64_t> answer);
  /// As SuffixMatcher::after; no guess runs from one answer into another.
  SuffixMatcher::Guess after(std::span<const int64_t> text, int64_t most) const;

 private:
  SuffixMatcher newer_, older_;
};

/// Adds the guess to the tree as a path from its root, along existing nodes that hold the same tokens.  New
/// nodes get a joint probability that grows with the length of the match; CostModel::calibrated corrects it.
void graft(CandidateTree& tree, const SuffixMatcher::Guess& guess);

}  // namespace clover::infer
