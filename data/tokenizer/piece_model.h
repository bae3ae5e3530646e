#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/bpe_merges.h"

namespace clover::data {

/// The vocabulary of a `tokenizer.json` of SentencePiece kind, and how it cuts a text into its tokens.
class PieceModel {
 public:
  virtual ~PieceModel() = default;

  /// Puts the tokens of `text` (UTF-8, less than 4 GiB) in place of `tokens`.  A byte token has the bytes of
  /// its own; others whole characters.  InputError when the text needs an unknown token and there is none.
  virtual void encode(std::string_view text, std::vector<BpeSymbol>& tokens) const = 0;

  virtual std::optional<int64_t> id_of(const std::string& token) const = 0;
  virtual int64_t size() const = 0;                           // number of tokens
  virtual const std::vector<std::string>& texts() const = 0;  // by id, "" for an unused one
};

}  // namespace clover::data
