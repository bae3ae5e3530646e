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

/// How a request changes the target's logits before a token is chosen (the logits processors of transformers
/// and vLLM).  The order is: biases, repetition penalty, frequency and presence penalty.  A banned token's
/// logit is minus infinity, whatever else applies to it.
struct LogitControls {
  /// For tokens that the prompt or the answer contains: positive logits are divided by it, negative ones
  /// multiplied.
  double repetition_penalty = 1;
  double presence_penalty = 0;   // subtracted from the logit of a token that the answer contains
  double frequency_penalty = 0;  // subtracted once for each time that the answer contains the token
  int64_t no_repeat_ngram = 0;   // no sequence of this many tokens occurs twice, prompt included; 0: no limit
  int64_t min_tokens = 0;        // end tokens are banned while the answer has fewer tokens
  int64_t min_length = 0;        // the same for the tokens of prompt and answer
  std::vector<std::pair<int64_t, double>> bias = {};  // token id, number added to its logit; no id twice
  std::vector<int64_t> suppressed = {};               // ids of banned tokens
  std::vector<int64_t> suppressed_first = {};         // the same, as the first token of an answer only
  /// Token sequences that no answer contains, none empty: the last token is banned after the others.
  std::vector<std::vector<int64_t>> bad_words = {};

  /// Whether any of the controls has an effect.
  bool have_effect() const;
  /// InputError for a token id outside the vocabulary of `vocab` tokens, and when all tokens would be banned.
  void check(int64_t vocab) const;
};

/// The logit edits of one pass: arguments of kernels::edit_logits (kernels/vocabulary/edit_logits.h).
struct LogitEdits {
  std::vector<kernels::LogitEdit> edits;
  std::vector<kernels::EditedRow> rows;
};

/// Computes the logit edits of one request.  It holds the tokens of prompt and answer so far, on which
/// penalties and bans depend.
class LogitEditor {
 public:
  /// `prompt`: token ids.  `end_ids`: ids of the tokens that end an answer; borrowed.
  LogitEditor(std::shared_ptr<const LogitControls> controls, std::span<const int64_t> prompt,
              const std::vector<int64_t>& end_ids);

  /// Appends the next token of the answer to the text.
  void append(int64_t token);

  /// Whether the edits of a row depend on the tokens before it, so that these must be known first.
  bool depends_on_text() const { return depends_on_text_; }

  /// Adds the edits for all nodes of a tree to `pass_edits`.  Node i is row first_row + i of the pass.  Each
  /// node gets the edits that plain decoding would make after the text and the node's path.  The root is the
  /// last token of the text; before the first token of the answer the tree is a root alone, whose id is not
  /// read.
  void add_edits(const CandidateTree& tree, int64_t first_row, LogitEdits& pass_edits);

 private:
  /// What the text so far says about one token, whose edit is in edits_.
  struct TokenEdit {
    size_t index;  // in edits_
    bool in_text = false;
    int64_t times_in_answer = 0;
  };
  class NodeEdits;
  kernels::LogitEdit edit_of(int64_t id, bool in_text, int64_t times_in_answer) const;
  kernels::LogitEdit edit_on_path(int64_t id, int64_t times_on_path) const;
  void update_edit(int64_t id, bool in_text, int64_t more_times_in_answer);
  bool has_penalties() const;
  void ban_after_text(int64_t answer_length, NodeEdits& edits) const;
  void ban_repeated_ngrams(NodeEdits& edits) const;

  std::shared_ptr<const LogitControls> controls_;
  const std::vector<int64_t>* end_ids_;
  bool depends_on_text_;
  std::vector<int64_t> text_;  // prompt and answer
  int64_t prompt_length_;
  std::unordered_map<int64_t, float> bias_;  // by token id; minus infinity: banned
  /// Bad words of several tokens, by their last token but one.
  std::unordered_multimap<int64_t, const std::vector<int64_t>*> bad_words_;
  std::vector<kernels::LogitEdit> edits_;  // the edits that the text so far causes, for every node
  std::unordered_map<int64_t, TokenEdit> edit_of_token_;
};

}  // namespace clover::infer
