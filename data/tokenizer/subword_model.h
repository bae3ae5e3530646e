#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/bpe_merges.h"

namespace clover::data {

/// The `model` of a `tokenizer.json` of SentencePiece kind, CharacterBpe or Unigram: a vocabulary, and the
/// algorithm that cuts a piece of text into its tokens.
class SubwordModel {
 public:
  virtual ~SubwordModel() = default;

  /// Replaces `tokens` by the tokens of `text` (UTF-8, less than 4 GiB).  A byte token covers one byte, the
  /// others cover whole characters.  InputError when the text needs an unknown token and there is none.
  virtual void encode(std::string_view text, std::vector<BpeSymbol>& tokens) const = 0;

  virtual std::optional<int64_t> id_of(const std::string& token) const = 0;
  virtual int64_t size() const = 0;                                   // number of tokens
  virtual const std::vector<std::string>& token_strings() const = 0;  // by id, "" for an unused one
};

}  // namespace clover::data
