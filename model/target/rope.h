#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/target/config_keys.h"

namespace clover::model {

/// By how much positions turn the pairs of queries and keys, and how that is stretched beyond the context of
/// pre-training: what Hugging Face's `modeling_rope_utils` computes.
struct Rope {
  enum class Kind { plain, linear, dynamic, proportional, llama3, yarn, longrope };
  Kind kind = Kind::plain;
  double theta = 10000;
  double factor = 1;
  double trained = 0;                                 // tokens of pre-training, of the kinds that ask
  double low_freq_factor = 1, high_freq_factor = 4;   // llama3
  double beta_fast = 32, beta_slow = 1;               // yarn
  bool truncate = true;                               // yarn: the range between both ends at whole numbers
  double scale = 1;                                   // of cosines and sines: "attention_factor"
  double share = 1;                                   // proportional: of the pairs, turned at all
  std::vector<double> short_factors, long_factors{};  // longrope, of each pair

  /// Whether a row's angles hang on how long the text was when it was read, where that is above `trained`.
  bool hangs_on_length() const { return kind == Kind::dynamic || kind == Kind::longrope; }

  /// Inverse frequencies [head_dim / 2] of a row read when the text had `length` tokens.
  std::vector<double> frequencies(int64_t head_dim, int64_t length) const;

  /// How many tokens a text may have whose pre-training had `positions`, as vLLM counts.
  int64_t context(int64_t positions) const;

  /// All that the frequencies are computed from, for comparing.
  nlohmann::json settings() const;
};

/// Reads "rope_parameters" (transformers 5) and "rope_scaling" with "rope_theta" (4) of a config.json, with
/// transformers' precedence.  `positions`: max_position_embeddings.  Appends to `notes` what is read
/// otherwise than a user may expect.  InputError when a value or a kind is not supported.
Rope read_rope(const nlohmann::json& config, const std::string& where, int64_t head_dim, int64_t positions,
               std::vector<std::string>& notes);

}  // namespace clover::model
