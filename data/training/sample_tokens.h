#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "data/training/training_input.h"

namespace clover::data {

/// Builds the samples of one record, prompt by prompt and answer by answer.
class SampleTokens {
 public:
  explicit SampleTokens(const Tokenizer& tokenizer);

  /// The whole prompt before the next answer, from the beginning of the conversation.  If its tokens begin
  /// with the tokens of the current sample, the sample is continued; otherwise a new one begins.
  void append_prompt(const std::string& prompt, bool add_bos);
  void append_prompt(std::span<const int64_t> prompt);  // token ids; begins a new sample

  /// The answer to the last prompt, which is supervised, and text after it, which is not.
  void append_answer(std::string_view answer, std::string_view after = {});
  void append_answer(std::span<const int64_t> answer);  // token ids that the model generated

  /// Text that is not supervised, after what was appended last.
  void append_unsupervised(std::string_view text);

  std::vector<TrainingSample> finish();

 private:
  void append(std::span<const int64_t> ids, bool supervised);
  void finish_sample();
  /// `text` tokenised as the continuation of the last prompt.  The first `context_bytes` bytes of the encoded
  /// text are context before `text`.
  Encoding encode_continuation(std::string_view text, size_t& context_bytes) const;

  const Tokenizer& tokenizer_;
  bool puts_space_before_text_;  // the tokenizer puts a space before a text, as SentencePiece does
  std::string text_;             // the last prompt
  std::string
      trailing_special_;  // its last token if that is special: rstrip of it may affect the text after it
  // Bytes and ids of the last prompt up to its last special token: text after that does not change their
  // tokens.
  size_t stable_bytes_ = 0, stable_ids_ = 0;
  TrainingSample sample_;
  std::vector<TrainingSample> finished_;
};

}  // namespace clover::data
