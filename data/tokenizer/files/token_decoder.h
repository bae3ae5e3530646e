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
    char content;
    size_t start, stop;  // how many are removed at most, at the beginning and at the end
  };
  void add(const nlohmann::json& config, const std::string& where);
  void add_strip(const nlohmann::json& config, const std::string& where);

  std::vector<std::pair<std::string, std::string>> replaced_;
  bool byte_fallback_ = false;  // ByteFallback: "<0x0A>" is a byte
  bool fused_ = false;          // Fuse: later steps apply to the whole text
  std::vector<Strip> strips_;   // applied to every token
  size_t first_spaces_ = 0;     // how many spaces the text loses at its beginning
  std::string first_marks_;     // Metaspace: the mark that the first token loses
  bool spaced_ = false;         // a space is put between tokens
};

}  // namespace clover::data
