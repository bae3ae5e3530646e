#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace clover::data {

/// The `decoder` of a `tokenizer.json` of SentencePiece kind: turns a token's text into the bytes it stands
/// for.
class TokenDecoder {
 public:
  /// InputError (beginning with `where`) naming what is not supported.
  static TokenDecoder from_json(const nlohmann::json& config, const std::string& where);

  /// Bytes of a token.  `first`: the token begins the text.
  std::string bytes_of(std::string_view token, bool first) const;

 private:
  struct Strip {
    char content;        // the character that is removed
    size_t start, stop;  // how many are removed at most at the beginning, and at the end
  };
  void add(const nlohmann::json& config, const std::string& where);
  void add_strip(const nlohmann::json& config, const std::string& where);

  std::vector<std::pair<std::string, std::string>> replacements_;  // Replace: pattern to content
  bool byte_fallback_ = false;                                     // ByteFallback: "<0x0A>" is a byte
  bool has_fuse_ = false;               // Fuse was read: later steps apply to the whole text
  std::vector<Strip> strips_;           // Strip before Fuse: applied to every token
  size_t leading_spaces_to_strip_ = 0;  // Strip after Fuse: how many spaces the text loses at its beginning
  std::string first_token_mark_;        // Metaspace: the mark that the first token loses; "": none
  bool joins_with_spaces_ = false;      // no decoder: a space is put between tokens
};

}  // namespace clover::data
