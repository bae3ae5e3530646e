#pragma once

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <unordered_map>

#include "data/tokenizer/subword_model.h"

namespace clover::data {

/// Unigram model: the segmentation with the largest sum of scores, found by Viterbi.  Characters that no
/// token covers become byte tokens or the unknown token; adjacent ones are fused into one.
class Unigram final : public SubwordModel {
 public:
  /// Reads the `model` of a tokenizer.json.  InputError beginning with `where`.
  Unigram(const nlohmann::json& model, const std::string& where);

  void encode(std::string_view text, std::vector<BpeSymbol>& tokens) const override;
  std::optional<int64_t> id_of(const std::string& token) const override;
  int64_t size() const override { return static_cast<int64_t>(token_strings_.size()); }
  const std::vector<std::string>& token_strings() const override { return token_strings_; }

 private:
  void add_to_trie(const std::string& token, int32_t id);
  void emit_token(std::string_view text, BpeSymbol token, std::vector<BpeSymbol>& tokens) const;

  std::vector<std::string> token_strings_;
  std::vector<double> scores_;
  std::unordered_map<std::string, int32_t> ids_;
  BpeMerges trie_;                 // (node, byte) to node; the root is 0
  std::vector<int32_t> token_of_;  // by node: the token that ends there, or -1
  std::array<int32_t, 256> bytes_;
  double unknown_score_ = 0;
  int32_t unknown_ = -1;
  bool byte_fallback_ = false;
};

}  // namespace clover::data
