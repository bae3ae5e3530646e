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

/// Rows [begin, end) of features that many sequences share.
struct FeatureRange {
  model::Features of;
  int64_t begin, end;
};

/// Accepted rows of one sequence that its drafter has not read yet.
struct PendingRows {
  std::vector<FeatureRange> parts;  // n rows in order, one part a pass
  std::vector<int64_t> next_ids;    // [n] the token after each row
  int32_t begin;                    // position of the first row
};

/// One request while it is decoded: what it has emitted, when it stops, and which accepted rows its drafter
/// has not read yet.
class LiveSequence {
 public:
  /// `end_ids` is borrowed.  `with_suffix`: keeps the text that `suffix` matches.
  LiveSequence(Request request, const data::Tokenizer& tokenizer, const std::vector<int64_t>& end_ids,
               bool with_suffix);

  /// The KvCache holds it as `sequence`, with the first `held` of its tokens, until `preempt`.
  void admit(int32_t sequence, int64_t held);
  /// The KvCache has dropped it.  After another `admit` it goes on where it was.
  void preempt();
  bool admitted() const { return sequence_ >= 0; }

  /// The tokens that the KvCache must hold before the sequence decodes: the prompt and, after a preemption,
  /// the answer without its last token, which is the root.
  std::span<const int64_t> prefill_tokens() const { return has_answer() ? prefill_tokens_ : request_.prompt; }
  bool has_answer() const { return !completion_.token_ids.empty(); }  // one token or more

  /// Takes the target's tokens one by one, as plain decoding would, and stops where it would: at an end
  /// token, a stop string or max_tokens.  -1, which is no token, ends the answer with an error.  Returns how
  /// many tokens were taken; the others are dropped.
  int64_t emit(const std::vector<int64_t>& tokens);

  /// Counts a decode pass that yielded `taken` tokens.
  void count_pass(int64_t taken);

  /// Text that no stop string can take back any more and that was not returned before.
  std::string take_text();

  /// The drafter has read the next `rows` rows, or need not.
  void advance_drafter(int64_t rows) { drafter_position_ += rows; }
  /// Accepted rows for the drafter, and the token after each.  `last_only`: the drafter reads nothing but the
  /// last row of all, which is the one row given.
  void add_pending(FeatureRange rows, std::vector<int64_t> next_ids, bool last_only);
  /// Takes all pending rows.
  PendingRows take_pending();
  int64_t pending_rows() const { return static_cast<int64_t>(pending_next_ids_.size()); }
  int64_t pending_passes() const { return static_cast<int64_t>(pending_.size()); }  // that the rows are from

  bool finished() const { return !completion_.finish_reason.empty(); }
  Completion take_completion();

  const Request& request() const { return request_; }
  int32_t sequence() const { return sequence_; }  // of the KvCache; -1: none
  DraftBackoff& backoff() { return backoff_; }
  LogitEditor* controlled() { return controlled_.get(); }  // null where the request edits no logits
  const SuffixMatcher& suffix() const { return suffix_; }  // of prompt and answer so far
  int64_t root() const { return completion_.token_ids.back(); }
  int64_t tokens_left() const {
    return request_.max_tokens - static_cast<int64_t>(completion_.token_ids.size());
  }

 private:
  Request request_;
  int32_t sequence_ = -1;
  std::vector<int64_t> prefill_tokens_;  // after a preemption; until then the prompt
  const std::vector<int64_t>* end_ids_;
  AnswerText text_;
  bool with_suffix_;
  SuffixMatcher suffix_;
  std::unique_ptr<LogitEditor> controlled_;
  DraftBackoff backoff_;
  Completion completion_;
  std::vector<FeatureRange> pending_;
  std::vector<int64_t> pending_next_ids_;
  int64_t drafter_position_ = 0;  // rows that the drafter has read or may skip
};

/// Sequences of a batch, in the order in which they began to decode.
using Sequences = std::span<LiveSequence* const>;

/// Tokens of one sequence that one pass prefills.
struct PrefillChunk {
  LiveSequence* live;
  int64_t begin, rows;  // within LiveSequence::prefill_tokens
  bool last;            // they end with the last of prefill_tokens
};

}  // namespace clover::infer
