#include "infer/engine/answer_text.h"

#include <algorithm>
#include <utility>

#include "data/text/utf8.h"

namespace clover::infer {

AnswerText::AnswerText(const data::Tokenizer& tokenizer, std::vector<std::string> stop,
                       std::span<const int64_t> continued)
    : tokenizer_(&tokenizer), decoder_(tokenizer), stop_(std::move(stop)) {
  for (const std::string& each : stop_) longest_stop_ = std::max(longest_stop_, each.size());
  decoder_.start_after(continued);
}

void AnswerText::append_special(int64_t id) {
  if (longest_stop_ == 0) return;  // full_text_ is only there to be searched for stop strings
  const std::string bytes = tokenizer_->token_bytes(id, false);
  if (special_tokens_.empty()) full_text_ = text_;
  special_tokens_.push_back({full_text_.size(), bytes.size()});
  full_text_ += bytes;
}

void AnswerText::append_text(const std::string& piece) {
  text_ += piece;
  if (!special_tokens_.empty()) full_text_ += piece;
}

/// Where the first stop string begins in `text`, whose first `old_size` bytes hold none; npos if there is
/// none.
size_t AnswerText::find_stop(const std::string& text, size_t old_size) const {
  size_t first = std::string::npos;
  for (const std::string& stop : stop_) {
    if (stop.empty()) continue;
    // A match ends in the new bytes, so at most stop.size() - 1 of its bytes are old.
    const size_t from = old_size >= stop.size() ? old_size - stop.size() + 1 : 0;
    first = std::min(first, text.find(stop, from));
  }
  return first;
}

size_t AnswerText::position_in_text(size_t position_in_full_text) const {
  size_t position = position_in_full_text;
  for (const SpecialToken& token : special_tokens_)
    if (position_in_full_text > token.begin)
      position -= std::min(token.size, position_in_full_text - token.begin);
  return position;
}

/// Cuts text_ before the first stop string and returns whether there is one.
bool AnswerText::cut_at_stop(size_t old_size, size_t old_full_size) {
  size_t cut = find_stop(text_, old_size);
  if (!special_tokens_.empty()) {
    const size_t in_full_text = find_stop(full_text_, old_full_size);
    if (in_full_text != std::string::npos) cut = std::min(cut, position_in_text(in_full_text));
  }
  if (cut == std::string::npos) return false;
  text_.resize(cut);
  return true;
}

bool AnswerText::push(int64_t id) {
  const size_t old_size = text_.size();
  const size_t old_full_size = special_tokens_.empty() ? text_.size() : full_text_.size();
  tokenizer_->is_special(id) ? append_special(id) : append_text(decoder_.push(id));
  return cut_at_stop(old_size, old_full_size);
}

void AnswerText::end(int64_t id) {
  append_text(decoder_.finish());
  const size_t old_size = text_.size();
  const size_t old_full_size = special_tokens_.empty() ? text_.size() : full_text_.size();
  append_special(id);
  cut_at_stop(old_size, old_full_size);
}

void AnswerText::finish() {
  append_text(decoder_.finish());
}

std::string AnswerText::take_new_text(bool finished) {
  // The last bytes may be the beginning of a stop string.
  const size_t held_back = finished || longest_stop_ == 0 ? 0 : longest_stop_ - 1;
  size_t end = text_.size() > held_back ? text_.size() - held_back : 0;
  // Do not cut a UTF-8 character in two.
  while (end > 0 && end < text_.size() && data::is_continuation_byte(text_[end])) --end;
  if (end <= taken_bytes_) return {};
  std::string new_text = text_.substr(taken_bytes_, end - taken_bytes_);
  taken_bytes_ = end;
  return new_text;
}

}  // namespace clover::infer
