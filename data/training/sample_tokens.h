#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "data/training/training_input.h"

namespace clover::data {

/// The samples of one record while they grow, prompt by prompt and answer by answer.
class SampleTokens {
 public:
  explicit SampleTokens(const Tokenizer& tokenizer);

  /// What the decoder reads before its next answer, from its very beginning.  A new sample begins where the
  /// tokens so far are not how it begins.
  void read(const std::string& prompt, bool add_bos);
  void read(std::span<const int64_t> prompt);  // that is tokens already, a new sample's

  /// An answer to what was read last, and what is no answer behind it.
  void write(std::string_view answer, std::string_view after = {});
  void write(std::span<const int64_t> answer);  // the model's own tokens

  /// Text behind what was read or written last, not to be learned.
  void skip(std::string_view text);

  std::vector<TrainingSample> finish();

 private:
  void append(std::span<const int64_t> ids, bool supervised);
  void close();
  /// `text` as it is tokenised behind what was read last, of which `lead` bytes stand before it.
  Encoding continued(std::string_view text, size_t& lead) const;

  const Tokenizer& tokenizer_;
  bool puts_space_before_text_;  // as SentencePiece does
  std::string text_;             // read last
  std::string mark_;             // its last token where that is a special one, which the text behind may heed
  // Up to here, a special token, nothing that stands behind changes tokens.
  size_t firm_text_ = 0, firm_ids_ = 0;
  TrainingSample sample_;
  std::vector<TrainingSample> done_;
};

}  // namespace clover::data
