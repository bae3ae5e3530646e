#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace clover::infer {

/// The text of an answer while its tokens arrive, up to a stop text.  Special tokens are not part of it, but
/// stop texts are also searched in the text with special tokens written out, so that ".<|im_end|>" is found.
class AnswerText {
 public:
  /// `continued`: ids of the text that the answer continues, on which the text of its first token depends;
  /// empty where it begins a text of its own.
  AnswerText(const data::Tokenizer& tokenizer, std::vector<std::string> stop,
             std::span<const int64_t> continued);

  /// Appends one token; returns whether a stop text ends the answer there.
  bool push(int64_t id);
  /// Appends the end token and finishes.
  void end(int64_t id);
  /// No more tokens will come.
  void finish();

  const std::string& text() const { return text_; }

  /// Text that no stop text can take back any more and that was not returned before.
  std::string take_certain(bool finished);

 private:
  /// A special token, which text_ lacks.
  struct Hidden {
    size_t begin, size;  // bytes of written_
  };
  void write_out(int64_t id);
  void append(const std::string& piece);
  bool hits_stop(size_t old_size, size_t old_written);
  size_t first_stop(const std::string& text, size_t old_size) const;
  size_t shown_before(size_t position) const;

  const data::Tokenizer* tokenizer_;
  data::StreamDecoder decoder_;
  std::vector<std::string> stop_;
  size_t longest_stop_ = 0;  // bytes
  std::string text_;
  std::string written_;  // text_ with special tokens written out; empty while there are none
  std::vector<Hidden> hidden_;
  size_t handed_out_ = 0;  // bytes of text_ that take_certain has returned
};

}  // namespace clover::infer
