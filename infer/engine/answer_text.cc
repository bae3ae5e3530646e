#include "infer/engine/answer_text.h"

#include <algorithm>
#include <utility>

#include "data/text/utf8.h"

namespace clover::infer {

AnswerText::AnswerText(const data::Tokenizer& tokenizer, std::vector<std::string> stop,
                       std::span<const int64_t> continued)
    : tokenizer_(&tokenizer), decoder_(tokenizer), stop_(std::move(stop)) {
  for (const std::string& one : stop_) longest_stop_ = std::max(longest_stop_, one.size());
  decoder_.start_after(continued);
}

void AnswerText::write_out(int64_t id) {
  if (longest_stop_ == 0) return;  // only stop texts are looked for in it
  const std::string bytes = tokenizer_->token_bytes(id, false);
  if (hidden_.empty()) written_ = text_;
  hidden_.push_back({written_.size(), bytes.size()});
  written_ += bytes;
}

void AnswerText::append(const std::string& piece) {
  text_ += piece;
  if (!hidden_.empty()) written_ += piece;
}

size_t AnswerText::first_stop(const std::string& text, size_t old_size) const {
  size_t first = std::string::npos;
  for (const std::string& stop : stop_) {
    if (stop.empty()) continue;
    // A new hit ends in the new text, so it begins at most one byte less than the stop text before it.
    const size_t from = old_size >= stop.size() ? old_size - stop.size() + 1 : 0;
    first = std::min(first, text.find(stop, from));
  }
  return first;
}

size_t AnswerText::shown_before(size_t position) const {
  size_t shown = position;
  for (const Hidden& hidden : hidden_)
    if (position > hidden.begin) shown -= std::min(hidden.size, position - hidden.begin);
  return shown;
}

bool AnswerText::hits_stop(size_t old_size, size_t old_written) {
  size_t cut = first_stop(text_, old_size);
  if (!hidden_.empty()) {
    const size_t written = first_stop(written_, old_written);
    if (written != std::string::npos) cut = std::min(cut, shown_before(written));
  }
  if (cut == std::string::npos) return false;
  text_.resize(cut);
  return true;
}

bool AnswerText::push(int64_t id) {
  const size_t old_size = text_.size(), old_written = hidden_.empty() ? text_.size() : written_.size();
  tokenizer_->is_special(id) ? write_out(id) : append(decoder_.push(id));
  return hits_stop(old_size, old_written);
}

void AnswerText::end(int64_t id) {
  append(decoder_.finish());
  const size_t old_size = text_.size(), old_written = hidden_.empty() ? text_.size() : written_.size();
  write_out(id);
  hits_stop(old_size, old_written);
}

void AnswerText::finish() {
  append(decoder_.finish());
}

std::string AnswerText::take_certain(bool finished) {
  const size_t held = finished || longest_stop_ == 0 ? 0 : longest_stop_ - 1;
  size_t until = text_.size() > held ? text_.size() - held : 0;
  // Holding back must not cut a character in two.
  while (until > 0 && until < text_.size() && data::is_continuation_byte(text_[until])) --until;
  if (until <= handed_out_) return {};
  std::string certain = text_.substr(handed_out_, until - handed_out_);
  handed_out_ = until;
  return certain;
}

}  // namespace clover::infer
