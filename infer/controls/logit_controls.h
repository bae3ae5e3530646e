#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "infer/tree/candidate_tree.h"
#include "kernels/vocabulary/logit_edit.h"

namespace clover::infer {

/// What a request does to the target's logits before a token is chosen by them.  Order: biases, repetition
/// penalty, frequency and presence penalty; what is banned stays out.
struct LogitControls {
  double repetition_penalty = 1;  // of ids in prompt and answer: logits below 0 times it, others over it
  double presence_penalty = 0;    // taken from ids in the answer
  double frequency_penalty = 0;   // .. for each time they stand there
  int64_t no_repeat_ngram = 0;    // no run of so many ids a second time, prompt included; 0: any
  int64_t min_tokens = 0;         // of an answer, before any end token
  int64_t min_length = 0;         // .. of prompt and answer
  std::vector<std::pair<int64_t, double>> bias = {};  // id -> what is added; no id twice
  std::vector<int64_t> suppressed = {};               // never chosen
  std::vector<int64_t> suppressed_first = {};         // not as the first token of an answer
  std::vector<std::vector<int64_t>> bad_words = {};   // runs of ids that no token may complete; none is empty

  /// Whether it does anything at all.
  bool any() const;
  /// InputError for an id outside the vocabulary, and where none would be left to choose.
  void check(int64_t vocab) const;
};

/// Edits of a pass: kernels::edit_logits' arguments.
struct LogitEdits {
  std::vector<kernels::LogitEdit> edits;
  std::vector<kernels::EditedRow> rows;
};

/// One request's text so far, and what its controls make of the logits behind it.
class ControlledText {
 public:
  /// `end_ids` is borrowed.
  ControlledText(std::shared_ptr<const LogitControls> controls, std::span<const int64_t> prompt,
                 const std::vector<int64_t>& end_ids);

  /// The next token of the answer.
  void append(int64_t token);

  /// Whether edits hang on the tokens before, so that they cannot be known before these.
  bool follows_text() const { return follows_text_; }

  /// Edits of the logits of a tree's nodes, rows `first_row` and on, as plain decoding would find them there:
  /// behind the text, which ends in the root, and a node's guesses up to it.  Before the first token the tree
  /// is a root, whose id nobody looks at.
  void add_edits(const CandidateTree& tree, int64_t first_row, LogitEdits& to);

 private:
  struct Held {
    size_t edit;  // its number in edits_
    bool in_text = false;
    int64_t answered = 0;  // times in the answer
  };
  class OwnEdits;
  kernels::LogitEdit edit_of(int64_t id, bool in_text, int64_t answered) const;
  kernels::LogitEdit edit_behind(int64_t id, int64_t more) const;
  void put(int64_t id, bool in_text, int64_t more_answered);
  bool penalises() const;
  void ban_behind(int64_t answered, OwnEdits& own) const;
  void ban_repeats(OwnEdits& own) const;

  std::shared_ptr<const LogitControls> controls_;
  const std::vector<int64_t>* end_ids_;
  bool follows_text_;
  std::vector<int64_t> text_;  // prompt and answer
  int64_t prompt_length_;
  std::unordered_map<int64_t, float> bias_;                             // of single ids; -inf bans
  std::unordered_multimap<int64_t, const std::vector<int64_t>*> runs_;  // bad words by the id before the last
  std::vector<kernels::LogitEdit> edits_;                               // of the text, without a tree
  std::unordered_map<int64_t, Held> held_;
};

}  // namespace clover::infer
