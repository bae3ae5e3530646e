#pragma once

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <unordered_map>

#include "data/tokenizer/subword_model.h"

namespace clover::data {

/// Unigram model: the segmentation with the largest sum of scores, found by Viterbi.  A run of characters
/// that no token covers becomes one unknown token, or byte tokens.
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

  std::vector<std::string> token_strings_;        // by id
  std::vector<double> scores_;                    // by id: log-probability of the token
  std::unordered_map<std::string, int32_t> ids_;  // by text
  BpeMerges trie_;                                // used as a hash table: (node, byte) to node; the root is 0
  std::vector<int32_t> token_of_node_;            // by node: the token that ends there, or -1
  std::array<int32_t, 256> byte_ids_;             // byte tokens; -1: none
  double unknown_score_ = 0;                      // of an unknown character
  int32_t unknown_id_ = -1;
  bool byte_fallback_ = false;
};

}  // namespace clover::data
