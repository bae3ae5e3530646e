#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace clover::infer {

/// Detokenises an answer token by token, up to a stop string.  Its text has no special tokens.  Stop strings
/// are searched twice: in the text, and in the text with special tokens written out, so that ".<|im_end|>"
/// is found.
class AnswerText {
 public:
  /// `stop`: stop strings.  `continued`: ids of the text that the answer continues, on which the text of its
  /// first token depends; empty where the answer begins a text of its own.  `tokenizer` is borrowed.
  AnswerText(const data::Tokenizer& tokenizer, std::vector<std::string> stop,
             std::span<const int64_t> continued);

  /// Appends one token.  Returns whether the answer now has a stop string, before which it has been cut.
  bool push(int64_t id);
  /// Appends the end token, after which no other may come.
  void end(int64_t id);
  /// Tells that no more tokens will come.
  void finish();

  const std::string& text() const { return text_; }

  /// The text since the last call that no stop string can remove any more.  `finished`: no more tokens will
  /// come.
  std::string take_new_text(bool finished);

 private:
  /// A special token, which full_text_ has and text_ has not.
  struct SpecialToken {
    size_t begin, size;  // bytes in full_text_
  };
  void append_special(int64_t id);
  void append_text(const std::string& piece);
  bool cut_at_stop(size_t old_size, size_t old_full_size);
  size_t find_stop(const std::string& text, size_t old_size) const;
  /// The position in text_ of the same place; within a special token, of its begin.
  size_t position_in_text(size_t position_in_full_text) const;

  const data::Tokenizer* tokenizer_;
  data::StreamDecoder decoder_;
  std::vector<std::string> stop_;
  size_t longest_stop_ = 0;  // bytes
  std::string text_;
  std::string full_text_;  // text_ with special tokens written out; empty while there are none
  std::vector<SpecialToken> special_tokens_;
  size_t taken_bytes_ = 0;  // of text_, returned by take_new_text
};

}  // namespace clover::infer
