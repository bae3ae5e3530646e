#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "infer/cost/draft_rest.h"
#include "infer/engine/answer_text.h"
#include "infer/engine/request.h"
#include "infer/tree/suffix_matcher.h"
#include "infer/tree/verify.h"
#include "model/target/target.h"

namespace clover::infer {

/// One request while it is decoded: what it has emitted, when it stops, and which accepted rows the drafter
/// has not seen yet.
class LiveSequence {
 public:
  /// `end_ids` is borrowed.  `with_suffix`: keeps what `suffix` needs.
  LiveSequence(Request request, const data::Tokenizer& tokenizer, const std::vector<int64_t>& end_ids,
               bool with_suffix);

  /// It is `sequence` in the KvCache from now on, which holds the first `held` of its tokens.
  void join(int32_t sequence, int64_t held);
  /// The KvCache holds nothing of it any more; it may join again and goes on where it was.
  void leave();
  /// What the KvCache has to hold before it can be decoded: the prompt and, when it joins again, its answer
  /// but the last token, which is the root.
  std::span<const int64_t> to_read() const { return answered() ? to_read_ : request_.prompt; }
  bool answered() const { return !completion_.token_ids.empty(); }  // one token or more

  /// Takes the target's tokens one by one, as plain decoding would, and stops where it would: at an end
  /// token, a stop string or max_tokens; -1, which is no token, is an error.  Returns how many were taken;
  /// the rest is dropped.
  int64_t emit(const std::vector<int64_t>& tokens);

  /// Counts a decode pass that yielded `taken` tokens.
  void count_pass(int64_t taken);

  /// Text that is certain and has not been handed out: a stop string can no longer take it back.
  std::string take_text();

  /// The drafter needs nothing of the next `rows` rows.
  void skip(int64_t rows) { seen_ += rows; }

  /// Rows [begin, end) of what many sequences share.
  struct FeatureRange {
    model::Features of;
    int64_t begin, end;
  };
  /// Accepted rows for the drafter, and the token after each.  With `last_only` it needs but the last of all
  /// rows so far, which is the one row given.
  void remember(FeatureRange rows, std::vector<int64_t> next_ids, bool last_only);
  struct Pending {
    std::vector<FeatureRange> parts;  // of n rows in order
    std::vector<int64_t> next_ids;    // [n]
    int32_t begin;                    // position of the first
  };
  /// What the drafter is to be primed with; nothing is pending afterwards.
  Pending take_pending();

  /// What the last step began for this one.
  struct Ahead {
    bool weighed = false;  // whether to draft for it was decided then
    bool wanted = false;   // it was, but the draft could not begin
    int64_t tree = -1;     // its number among the trees that grow; -1: none
    int64_t row = -1;      // .. among the rows of the next pass, which has begun; -1: none
    bool reading = false;  // that pass reads a chunk of it
  };
  Ahead& ahead() { return ahead_; }

  int64_t rows_unseen() const { return static_cast<int64_t>(pending_next_ids_.size()); }  // pending ones
  /// Passes of the target whose rows are pending.
  int64_t passes_unseen() const { return static_cast<int64_t>(pending_.size()); }

  bool finished() const { return !completion_.finish_reason.empty(); }
  Completion take_completion();

  const Request& request() const { return request_; }
  int32_t sequence() const { return sequence_; }
  DraftRest& rest() { return rest_; }
  ControlledText* controlled() { return controlled_.get(); }  // null where logits stay as they are
  const SuffixMatcher& suffix() const { return suffix_; }     // of prompt and answer so far
  int64_t root() const { return completion_.token_ids.back(); }
  int64_t tokens_left() const {
    return request_.max_tokens - static_cast<int64_t>(completion_.token_ids.size());
  }

 private:
  Request request_;
  int32_t sequence_ = -1;
  std::vector<int64_t> to_read_;
  const std::vector<int64_t>* end_ids_;
  AnswerText text_;
  bool with_suffix_;
  SuffixMatcher suffix_;
  std::unique_ptr<ControlledText> controlled_;
  DraftRest rest_;
  Completion completion_;
  std::vector<FeatureRange> pending_;
  std::vector<int64_t> pending_next_ids_;
  Ahead ahead_;
  int64_t seen_ = 0;  // rows the drafter has been primed with or may skip
};

/// The next tokens of a sequence that joins, which one pass reads.
struct PromptChunk {
  LiveSequence* live;
  int64_t begin, rows;  // of LiveSequence::to_read
  bool last;            // there is nothing behind them
};

}  // namespace clover::infer
