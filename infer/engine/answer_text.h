#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace clover::infer {

/// The text of an answer as its tokens come, up to a stop text.  Special tokens are no part of it, but stop
/// texts are looked for in the text with them written out, too: "<|im_end|>" is found, and ".<|im_end|>".
class AnswerText {
 public:
  /// `continued`: the ids of the text that the answer goes on with, which its first token depends on; empty
  /// when it begins a text of its own.
  AnswerText(const data::Tokenizer& tokenizer, std::vector<std::string> stop,
             std::span<const int64_t> continued);

  /// Takes one token; whether a stop text ends the answer there.
  bool push(int64_t id);
  /// Takes the token that ends the answer, and the end.
  void end(int64_t id);
  /// No token comes any more.
  void finish();

  const std::string& text() const { return text_; }

  /// Of the text, what was not handed out and is certain: a stop text can no longer take it back.
  std::string take_certain(bool finished);

 private:
  struct Hidden {
    size_t begin, size;  // in written_
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
  std::string written_;  // the text with special tokens in it, once there is one
  std::vector<Hidden> hidden_;
  size_t handed_out_ = 0;  // bytes of the text
};

}  // namespace clover::infer
