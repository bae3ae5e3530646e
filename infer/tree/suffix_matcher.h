#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "infer/tree/candidate_tree.h"

namespace clover::infer {

/// Guesses without training: where a sequence's last tokens stood before, what followed then may follow again
/// (prompt lookup, Saxena 2023; SuffixDecoding, arXiv 2411.04975).
class SuffixMatcher {
 public:
  /// The sequence went on with these tokens.
  void append(std::span<const int64_t> ids);

  struct Guess {
    std::vector<int64_t> ids;  // what followed the earlier place, nearest first
    int64_t match = 0;         // how many of the last tokens stood there too, 2 or more
  };
  /// What may follow `text`, from this sequence: at most `most` tokens after the place that shares the
  /// longest run of its last tokens, the latest of several; nothing when the last two never stood together
  /// here.
  Guess after(std::span<const int64_t> text, int64_t most) const;
  /// What may follow this sequence itself.
  Guess guess(int64_t most) const { return after(ids_, most); }

  std::span<const int64_t> ids() const { return ids_; }

 private:
  std::vector<int64_t> ids_;
  std::vector<int32_t> earlier_;  // [i]: the last place before i where ids_[i - 1], ids_[i] stood; -1: none
  std::unordered_map<uint64_t, int32_t> newest_;  // pair of tokens -> where its second one stood last
};

/// What a job has answered so far, for guesses in later answers: the last half to whole million tokens.
class AnswerMatcher {
 public:
  void append(std::span<const int64_t> answer);
  /// As SuffixMatcher::after; no guess runs from one answer into another.
  SuffixMatcher::Guess after(std::span<const int64_t> text, int64_t most) const;

 private:
  SuffixMatcher newer_, older_;
};

/// Adds the guess to the tree as a branch of its root, along nodes that say the same.  New nodes carry a
/// joint probability that grows with the length of the match: a first word, which calibration corrects.
void graft(CandidateTree& tree, const SuffixMatcher::Guess& guess);

}  // namespace clover::infer
