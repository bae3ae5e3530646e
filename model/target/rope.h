#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/cache/rotary_table.h"
#include "model/target/config_keys.h"

namespace clover::model {

/// Rotary position embedding and its scaling to contexts longer than in pre-training, as Hugging Face's
/// `modeling_rope_utils` computes it.
struct Rope {
  enum class Kind { plain, linear, dynamic, proportional, llama3, yarn, longrope };
  Kind kind = Kind::plain;
  double theta = 10000;
  double factor = 1;
  double pretraining_context = 0;  // "original_max_position_embeddings", for kinds that use it
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;         // yarn: round the ends of the correction range to integers
  double attention_factor = 1;  // factor of cosines and sines
  double rotary_fraction = 1;   // proportional: "partial_rotary_factor"
  std::vector<double> short_factors, long_factors{};  // longrope: one for each pair

  /// Whether, for texts longer than `pretraining_context`, a row's angles depend on the text's length when it
  /// was read.
  bool depends_on_length() const { return kind == Kind::dynamic || kind == Kind::longrope; }

  /// Inverse frequencies [head_dim / 2] of a row that was read when the text had `length` tokens.
  std::vector<double> frequencies(int64_t head_dim, int64_t length) const;

  /// How a layer with heads of that size rotates.
  Rotation rotation(int64_t head_dim) const;

  /// The largest number of tokens of a text, as in vLLM; `positions`: max_position_embeddings.
  int64_t context(int64_t positions) const;

  /// Everything that the frequencies are computed from, to compare targets.
  nlohmann::json settings() const;
};

/// Reads "rope_parameters" (transformers 5) or "rope_scaling" and "rope_theta" (transformers 4) of a
/// config.json, with transformers' precedence.  `positions`: max_position_embeddings.  Appends warnings to
/// `notes` where the result may surprise a user.  InputError when a value or kind is not supported.
Rope read_rope(const nlohmann::json& config, const std::string& where, int64_t head_dim, int64_t positions,
               std::vector<std::string>& notes);

}  // namespace clover::model
