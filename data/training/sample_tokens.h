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

  /// `prompt`: the whole text before the next answer, from the beginning of the conversation.  If its tokens
  /// begin with the tokens of the current sample, that sample goes on; otherwise a new sample begins.
  void append_prompt(const std::string& prompt, bool add_bos);
  /// The same for a prompt of token ids, which always begins a new sample.
  void append_prompt(std::span<const int64_t> prompt);

  /// Appends the answer to the last prompt, which is supervised, and the text after it, which is not.
  void append_answer(std::string_view answer, std::string_view after = {});
  /// Appends an answer of token ids that the model generated.
  void append_answer(std::span<const int64_t> answer);

  /// Appends text that is not supervised.
  void append_unsupervised(std::string_view text);

  std::vector<TrainingSample> finish();  // returns all samples

 private:
  void append(std::span<const int64_t> ids, bool supervised);
  void finish_sample();
  /// Tokenises `text` as the continuation of the last prompt.  Where the end of the prompt can change the
  /// tokens of `text`, a short context of `context_bytes` bytes is put before it.  The result has the
  /// context's tokens, too, and its spans count from the beginning of the context.
  Encoding encode_continuation(std::string_view text, size_t& context_bytes) const;

  const Tokenizer& tokenizer_;
  bool puts_space_before_text_;  // the tokenizer puts a space before a text, as SentencePiece does
  std::string prompt_;           // the last prompt
  /// The text of the last token of the prompt, if that is special, else "".  An added token with `rstrip`
  /// takes the whitespace after it, so this token may change the tokens of the text after it.
  std::string trailing_special_;
  /// How many bytes and ids of the prompt lie before its last special token.  Text after that token cannot
  /// change these ids, so a next prompt that begins with the same bytes is tokenised from there on.
  size_t stable_bytes_ = 0, stable_ids_ = 0;
  TrainingSample sample_;  // the current one
  std::vector<TrainingSample> finished_;
};

}  // namespace clover::data
