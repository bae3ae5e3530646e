#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/cache/rotary_table.h"
#include "model/target/config_keys.h"

namespace clover::model {

/// Rotary position embedding (RoPE) and its scaling to contexts longer than in pre-training, as Hugging
/// Face's `modeling_rope_utils` computes it.  Members have the names of the keys in config.json, where not
/// said otherwise.
struct Rope {
  enum class Kind { plain, linear, dynamic, proportional, llama3, yarn, longrope };  // "rope_type"
  Kind kind = Kind::plain;
  double theta = 10000;  // "rope_theta": the base of the frequencies
  double factor = 1;     // how many times longer the context is than in pre-training
  /// "original_max_position_embeddings", in tokens; 0 for kinds that do not use it.
  double pretraining_context = 0;
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;         // yarn: round the bounds of the ramp (yarn_ramp in rope.cc) to integers
  double attention_factor = 1;  // multiplies all cosines and sines
  double rotary_fraction = 1;   // proportional: "partial_rotary_factor", the share of pairs that rotate
  std::vector<double> short_factors, long_factors{};  // longrope: [head_dim / 2] divisors of the frequencies

  /// Whether the angles of a row depend on how long the text was when the row was computed.  They do so only
  /// for texts longer than `pretraining_context`.
  bool depends_on_length() const { return kind == Kind::dynamic || kind == Kind::longrope; }

  /// Inverse frequencies [head_dim / 2] for a row that is computed when its text has `length` tokens.
  std::vector<double> frequencies(int64_t head_dim, int64_t length) const;

  /// The same as the KV cache takes it (model/cache/rotary_table.h).
  Rotation rotation(int64_t head_dim) const;

  /// The context length in tokens, as vLLM computes it.  `positions`: the context length before scaling.
  int64_t context(int64_t positions) const;

  /// All that the frequencies are computed from, as JSON, to compare targets by.
  nlohmann::json settings() const;
};

/// Reads "rope_parameters" (transformers 5) or "rope_scaling" and "rope_theta" (transformers 4) of `config`,
/// a config.json; if both are there, the one that transformers uses.  `where`: its path, for messages.
/// `positions`: max_position_embeddings.  Appends warnings for the user to `notes`.  InputError when a value
/// or kind is not supported.
Rope read_rope(const nlohmann::json& config, const std::string& where, int64_t head_dim, int64_t positions,
               std::vector<std::string>& notes);

}  // namespace clover::model
