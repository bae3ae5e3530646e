#pragma once

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <memory>
#include <unordered_map>

#include "data/tokenizer/subword_model.h"

namespace clover::data {

/// Byte-pair encoding over characters.  A character outside the vocabulary becomes byte tokens ("<0xE2>"),
/// the unknown token, or nothing, as the file says.
class CharacterBpe final : public SubwordModel {
 public:
  /// Reads the `model` of a tokenizer.json.  InputError beginning with `where`.
  CharacterBpe(const nlohmann::json& model, const std::string& where);

  void encode(std::string_view text, std::vector<BpeSymbol>& tokens) const override;
  std::optional<int64_t> id_of(const std::string& token) const override;
  int64_t size() const override { return static_cast<int64_t>(ids_.size()); }
  const std::vector<std::string>& token_strings() const override { return token_strings_; }

 private:
  void read_vocab(const nlohmann::json& vocab, const std::string& where);
  void read_merges(const nlohmann::json& model, const std::string& where);
  void read_unknown(const nlohmann::json& model, const std::string& where);
  /// Appends the tokens of bytes [begin, end) of `text`.
  void encode_word(std::string_view text, size_t begin, size_t end, std::vector<BpeSymbol>& symbols) const;
  int32_t id_of_character(std::string_view character) const;

  std::unordered_map<std::string, int32_t> ids_;                 // by text
  std::vector<std::string> token_strings_;                       // by id
  std::unordered_map<std::string_view, int32_t> character_ids_;  // tokens of one character that is not ASCII
  std::array<int32_t, 128> ascii_ids_;                           // tokens of one ASCII character; -1: none
  std::array<int32_t, 256> byte_ids_;                            // byte tokens; -1: none
  BpeMerges merges_;
  size_t max_token_bytes_ = 0;
  int32_t unknown_id_ = -1;     // -1: unknown characters are dropped
  bool ignore_merges_ = false;  // a text that is a token by itself is taken without merging
  bool byte_fallback_ = false;  // unknown characters become byte tokens
  bool fuse_unk_ = false;       // a run of unknown characters is one unknown token
  /// No merge crosses the beginning of a word, which is a mark (U+2581) after another character.
  bool merges_stay_in_words_ = false;
};

}  // namespace clover::data
