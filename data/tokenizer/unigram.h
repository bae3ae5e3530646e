#pragma once

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <unordered_map>

#include "data/tokenizer/piece_model.h"

namespace clover::data {

/// Tokens of the largest summed score.  Characters that no token covers are the unknown token, or tokens of
/// their bytes; neighbours of them are one.
class Unigram final : public PieceModel {
 public:
  /// Of the `model` of a tokenizer.json.  InputError beginning with `where`.
  Unigram(const nlohmann::json& model, const std::string& where);

  void encode(std::string_view text, std::vector<BpeSymbol>& tokens) const override;
  std::optional<int64_t> id_of(const std::string& token) const override;
  int64_t size() const override { return static_cast<int64_t>(texts_.size()); }
  const std::vector<std::string>& texts() const override { return texts_; }

 private:
  void add_to_trie(const std::string& token, int32_t id);
  void put_token(std::string_view text, BpeSymbol token, std::vector<BpeSymbol>& tokens) const;

  std::vector<std::string> texts_;
  std::vector<double> scores_;
  std::unordered_map<std::string, int32_t> ids_;
  BpeMerges trie_;                 // (node, byte) to node; the root is 0
  std::vector<int32_t> token_of_;  // by node, -1 where none ends
  std::array<int32_t, 256> bytes_;
  double unknown_score_ = 0;
  int32_t unknown_ = -1;
  bool falls_back_ = false;
};

}  // namespace clover::data
