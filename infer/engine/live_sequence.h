#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "infer/cost/draft_backoff.h"
#include "infer/engine/answer_text.h"
#include "infer/engine/request.h"
#include "infer/tree/suffix_matcher.h"
#include "infer/tree/verify.h"
#include "model/target/target.h"

namespace clover::infer {

/// Rows [begin, end) of a tensor of features, in which other sequences have rows too.
struct FeatureRange {
  model::Features features;
  int64_t begin, end;
};

/// Accepted rows of one sequence that its drafter has not read yet.
struct PendingRows {
  std::vector<FeatureRange> parts;  // P rows in order, usually one part for each pass
  std::vector<int64_t> next_ids;    // [P] the token after each row
  int32_t begin;                    // position of the first row in the sequence
};

/// One request from its submission to its completion: the tokens emitted so far, when it stops, and the
/// accepted rows that its drafter has not read yet.
class LiveSequence {
 public:
  /// `tokenizer` and `end_ids` are borrowed.  `uses_suffix_matcher`: suffix_matcher() gets the text; else it
  /// stays empty.
  LiveSequence(Request request, const data::Tokenizer& tokenizer, const std::vector<int64_t>& end_ids,
               bool uses_suffix_matcher);

  /// Tells that the KvCache holds it as `sequence` from now on, with its first `cached_tokens` tokens.
  void admit(int32_t sequence, int64_t cached_tokens);
  /// Tells that the KvCache has dropped it.  The answer so far stays, and goes on after another `admit`.
  void preempt();
  bool admitted() const { return sequence_ >= 0; }

  /// The tokens that the KvCache must hold before the sequence decodes: the prompt and, after a preemption,
  /// the answer without its last token, which is the root of the next tree.
  std::span<const int64_t> prefill_tokens() const { return has_answer() ? prefill_tokens_ : request_.prompt; }
  bool has_answer() const { return !completion_.token_ids.empty(); }  // one token or more

  /// Appends the target's tokens to the answer one by one and stops where plain decoding would: at an end
  /// token, a stop string or max_tokens.  A token of -1 means that none could be chosen, and ends the answer
  /// with an error.  Returns how many tokens were appended; the others are dropped.
  int64_t emit(const std::vector<int64_t>& tokens);

  /// Counts a decode pass from which the answer got `taken` >= 1 tokens.
  void count_pass(int64_t taken);

  /// The text since the last call that no stop string can remove any more.
  std::string take_text();

  /// Tells that the drafter has read the next `rows` rows, or need not read them.
  void advance_drafter(int64_t rows) { drafter_position_ += rows; }
  /// Adds accepted rows for the drafter, and the token after each.  `last_only`: the drafter reads only the
  /// last accepted row; `rows` is that one row, and replaces those pending.
  void add_pending(FeatureRange rows, std::vector<int64_t> next_ids, bool last_only);
  /// Returns all pending rows and counts them as read.
  PendingRows take_pending();
  int64_t pending_rows() const { return static_cast<int64_t>(pending_next_ids_.size()); }
  int64_t pending_parts() const { return static_cast<int64_t>(pending_.size()); }

  bool finished() const { return !completion_.finish_reason.empty(); }
  Completion take_completion();

  const Request& request() const { return request_; }
  int32_t seq_id() const { return sequence_; }  // its number in the KvCache; -1: not admitted
  DraftBackoff& backoff() { return backoff_; }  // when the heads draft for it (draft_backoff.h)
  LogitEditor* logit_editor() { return logit_editor_.get(); }  // null where the request edits no logits
  const SuffixMatcher& suffix_matcher() const { return suffix_matcher_; }  // of prompt and answer so far
  /// The last token of the answer, which is the root of the next tree.
  int64_t root() const { return completion_.token_ids.back(); }
  /// Request::recorded, which must be set, from the next token on.
  std::span<const int64_t> recorded_tokens() const {
    return std::span(request_.recorded->token_ids).subspan(completion_.token_ids.size());
  }
  int64_t tokens_left() const {
    return request_.max_tokens - static_cast<int64_t>(completion_.token_ids.size());
  }

 private:
  Request request_;
  int32_t sequence_ = -1;
  std::vector<int64_t> prefill_tokens_;  // only after a preemption with an answer; else the prompt is used
  const std::vector<int64_t>* end_ids_;
  AnswerText text_;
  bool uses_suffix_matcher_;
  SuffixMatcher suffix_matcher_;
  std::unique_ptr<LogitEditor> logit_editor_;
  DraftBackoff backoff_;
  Completion completion_;
  std::vector<FeatureRange> pending_;      // as PendingRows::parts
  std::vector<int64_t> pending_next_ids_;  // as PendingRows::next_ids
  int64_t drafter_position_ = 0;           // rows that the drafter has read or may skip
};

/// The sequences of a batch, in the order in which they began to decode.
using Sequences = std::span<LiveSequence* const>;

/// Tokens of one sequence that one pass prefills: `rows` elements of LiveSequence::prefill_tokens from index
/// `begin` on.
struct PrefillChunk {
  LiveSequence* live;
  int64_t begin, rows;
  bool last;  // the chunk ends with the last element of prefill_tokens
};

}  // namespace clover::infer
