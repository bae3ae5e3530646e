#pragma once

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <memory>
#include <unordered_map>

#include "data/tokenizer/piece_model.h"

namespace clover::data {

/// Byte-pair encoding over characters, those that the vocabulary lacks as tokens of their bytes ("<0xE2>") or
/// as the unknown token.
class CharacterBpe final : public PieceModel {
 public:
  /// Of the `model` of a tokenizer.json.  InputError beginning with `where`.
  CharacterBpe(const nlohmann::json& model, const std::string& where);

  void encode(std::string_view text, std::vector<BpeSymbol>& tokens) const override;
  std::optional<int64_t> id_of(const std::string& token) const override;
  int64_t size() const override { return static_cast<int64_t>(ids_.size()); }
  const std::vector<std::string>& texts() const override { return texts_; }

 private:
  void read_vocab(const nlohmann::json& vocab, const std::string& where);
  void read_merges(const nlohmann::json& model, const std::string& where);
  void read_unknown(const nlohmann::json& model, const std::string& where);
  void encode_word(std::string_view text, size_t begin, size_t end, std::vector<BpeSymbol>& symbols) const;
  int32_t id_of_character(std::string_view character) const;

  std::unordered_map<std::string, int32_t> ids_;
  std::vector<std::string> texts_;
  std::unordered_map<std::string_view, int32_t> characters_;  // tokens of one character, beyond ASCII
  std::array<int32_t, 128> ascii_;
  std::array<int32_t, 256> bytes_;  // -1 where there is no token
  BpeMerges merges_;
  size_t longest_ = 0;  // token, in bytes
  int32_t unknown_ = -1;
  bool whole_first_ = false;  // `ignore_merges`: a text that is a token is not merged up to
  bool falls_back_ = false;   // to bytes
  bool fuses_unknown_ = false;
  bool words_are_apart_ = false;  // no token reaches from a word into the mark of the next
};

}  // namespace clover::data
