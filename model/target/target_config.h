#pragma once

#include <c10/core/ScalarType.h>

#include <filesystem>
#include <string>
#include <vector>

#include "model/target/rope.h"

namespace clover::model {

/// The configuration of a decoder-only target, from `config.json` and `generation_config.json` of a Hugging
/// Face folder.
struct TargetConfig {
  std::string family;  // model_type: llama, mistral, qwen2 or qwen3
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate = 0;
  int64_t vocab = 0;
  int64_t context = 0;  // largest number of tokens of a text
  int64_t window = 0;   // sliding window of attention, which a text must not exceed; 0: none
  double norm_eps = 1e-5;
  Rope rope;
  bool qkv_bias = false;      // queries, keys and values have a bias (Qwen2)
  bool head_norms = false;    // RMSNorm of each head of queries and keys (Qwen3)
  bool tied_head = false;     // the LM head is the embedding
  bool tie_unstated = false;  // config.json does not say so; then a folder without a head tensor is tied
  c10::ScalarType stored_dtype = c10::ScalarType::BFloat16;
  bool dtype_unstated = false;     // config.json does not say; `read` takes it from the weights
  std::vector<int64_t> end_ids;    // tokens that end an answer
  std::vector<std::string> notes;  // warnings for the user, one line each

  int64_t query_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }

  /// The settings that change what the network computes, by name; they tell targets with equal weights apart.
  nlohmann::json function() const;

  /// The number of parameters in all matrices; a tied embedding and head count once.
  double weights() const;

  /// Reads a folder.  InputError when it or a key is missing, or a value is unknown or inconsistent.
  static TargetConfig read(const std::filesystem::path& folder);

  /// Reads a config.json alone.
  static TargetConfig read_file(const std::filesystem::path& file);
};

/// Rotary inverse frequencies [head_dim / 2] of a text no longer than the pre-training context.
std::vector<double> rope_frequencies(const TargetConfig& config);

/// "bfloat16" | "float16" | "float32"; InputError otherwise.
c10::ScalarType parse_dtype(const std::string& name);
std::string dtype_name(c10::ScalarType dtype);

}  // namespace clover::model
