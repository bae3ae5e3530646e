#include "infer/engine/live_sequence.h"

#include <algorithm>
#include <utility>

namespace clover::infer {
namespace {

constexpr int64_t max_pending_parts = 16;

/// The error of a request for which no token can be chosen after `tokens` tokens of prompt and answer.
/// `controlled`: the request edits logits.
std::string no_token_error(size_t tokens, bool controlled) {
  const std::string after = "after " + std::to_string(tokens) + " tokens ";
  if (controlled)
    return after +
           "the request's bad words, suppressed tokens and runs not to be repeated leave none to "
           "choose, or the model's logits are not numbers";
  return "the model's logits " + after +
         "are not numbers: either its weights are damaged, which inspect --verify finds, or they overflow in "
         "--dtype float16, which bfloat16 does not";
}

}  // namespace

LiveSequence::LiveSequence(Request request, const data::Tokenizer& tokenizer,
                           const std::vector<int64_t>& end_ids, bool uses_suffix_matcher)
    : request_(std::move(request)),
      end_ids_(&end_ids),
      text_(tokenizer, request_.stop,
            request_.continues_text ? std::span<const int64_t>(request_.prompt) : std::span<const int64_t>()),
      uses_suffix_matcher_(uses_suffix_matcher) {
  completion_.tag = request_.tag;
  completion_.prompt_tokens = static_cast<int64_t>(request_.prompt.size());
  if (request_.controls)
    logit_editor_ = std::make_unique<LogitEditor>(request_.controls, request_.prompt, end_ids);
}

void LiveSequence::admit(int32_t sequence, int64_t cached_tokens) {
  sequence_ = sequence;
  drafter_position_ = cached_tokens;
  if (uses_suffix_matcher_ && suffix_matcher_.ids().empty()) suffix_matcher_.append(request_.prompt);
}

void LiveSequence::preempt() {
  sequence_ = -1;
  pending_.clear();
  pending_next_ids_.clear();
  if (!has_answer()) return;
  prefill_tokens_ = request_.prompt;
  prefill_tokens_.insert(prefill_tokens_.end(), completion_.token_ids.begin(),
                         completion_.token_ids.end() - 1);
}

int64_t LiveSequence::emit(const std::vector<int64_t>& tokens) {
  int64_t taken = 0;
  for (const int64_t token : tokens) {
    if (finished()) break;
    if (token < 0) {
      completion_.finish_reason = "error";
      completion_.error =
          no_token_error(request_.prompt.size() + completion_.token_ids.size(), logit_editor_ != nullptr);
      break;
    }
    ++taken;
    completion_.token_ids.push_back(token);
    if (uses_suffix_matcher_) suffix_matcher_.append({&token, 1});
    if (logit_editor_) logit_editor_->append(token);
    if (std::find(end_ids_->begin(), end_ids_->end(), token) != end_ids_->end()) {
      completion_.finish_reason = "stop";
      text_.end(token);
      break;
    }
    if (text_.push(token)) {
      completion_.finish_reason = "stop";
    } else if (tokens_left() <= 0) {
      completion_.finish_reason = "length";
      text_.finish();
    }
  }
  return taken;
}

void LiveSequence::count_pass(int64_t taken) {
  ++completion_.steps;
  const size_t accepted = static_cast<size_t>(taken - 1);
  if (completion_.accepted_histogram.size() <= accepted) completion_.accepted_histogram.resize(accepted + 1);
  ++completion_.accepted_histogram[accepted];
}

std::string LiveSequence::take_text() {
  return text_.take_new_text(finished());
}

void LiveSequence::add_pending(FeatureRange rows, std::vector<int64_t> next_ids, bool last_only) {
  if (last_only) {
    drafter_position_ += static_cast<int64_t>(pending_next_ids_.size());
    pending_.clear();
    pending_next_ids_.clear();
  }
  // Each part keeps the features of a whole batch in memory, so many parts are copied into one.
  if (std::ssize(pending_) >= max_pending_parts) {
    std::vector<model::Features> parts;
    for (const FeatureRange& part : pending_) parts.push_back(part.features.slice(part.begin, part.end));
    const model::Features joined = model::Features::concatenated(parts);
    pending_ = {{joined, 0, std::ssize(pending_next_ids_)}};
  }
  pending_.push_back(std::move(rows));
  pending_next_ids_.insert(pending_next_ids_.end(), next_ids.begin(), next_ids.end());
}

PendingRows LiveSequence::take_pending() {
  const int32_t begin = static_cast<int32_t>(drafter_position_);
  drafter_position_ += static_cast<int64_t>(pending_next_ids_.size());
  return {std::exchange(pending_, {}), std::exchange(pending_next_ids_, {}), begin};
}

Completion LiveSequence::take_completion() {
  completion_.text = text_.text();
  return std::move(completion_);
}

}  // namespace clover::infer
