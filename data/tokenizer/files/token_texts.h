#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace clover::data {

/// The `decoder` of a `tokenizer.json` of SentencePiece kind: what a token's text says within a text.
class TokenTexts {
 public:
  /// InputError (beginning with `where`) naming what is not supported.
  static TokenTexts from_json(const nlohmann::json& config, const std::string& where);

  /// Bytes of a token; `first`: it begins the text.
  std::string bytes_of(std::string_view token, bool first) const;

 private:
  struct Strip {
    char content;
    size_t start, stop;  // at most so many at each end
  };
  void add(const nlohmann::json& config, const std::string& where);
  void add_strip(const nlohmann::json& config, const std::string& where);

  std::vector<std::pair<std::string, std::string>> replaced_;
  bool byte_fallback_ = false;  // "<0x0A>" is a byte
  bool fused_ = false;          // what follows concerns the whole text
  std::vector<Strip> strips_;   // of every token
  size_t first_spaces_ = 0;     // taken from the beginning of the text
  std::string first_marks_;     // characters that the first token loses
  bool spaced_ = false;         // a space between tokens
};

}  // namespace clover::data
