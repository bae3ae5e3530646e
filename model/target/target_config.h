#pragma once

#include <c10/core/ScalarType.h>

#include <filesystem>
#include <string>
#include <vector>

#include "model/target/rope.h"

namespace clover::model {

/// What `config.json` and `generation_config.json` of a Hugging Face folder say about a decoder-only target.
struct TargetConfig {
  std::string family;  // model_type: llama, mistral, qwen2 or qwen3
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate = 0;
  int64_t vocab = 0;
  int64_t context = 0;  // most tokens of a text
  int64_t window = 0;   // how far back a row sees, which a text must not exceed; 0: without end
  double norm_eps = 1e-5;
  Rope rope;
  bool qkv_bias = false;      // of queries, keys and values (Qwen2)
  bool head_norms = false;    // each head of queries and keys goes through an RMSNorm (Qwen3)
  bool tied_head = false;     // the head is the embedding
  bool tie_unstated = false;  // config.json does not say; a folder without a head of its own is tied
  c10::ScalarType stored_dtype = c10::ScalarType::BFloat16;
  bool dtype_unstated = false;     // config.json does not say; `read` asks the weights
  std::vector<int64_t> end_ids;    // tokens that end an answer
  std::vector<std::string> notes;  // what is read otherwise than a user may expect, a line each

  int64_t query_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }

  /// What of it changes what the network computes, by name: for telling targets of the same weights apart.
  nlohmann::json function() const;

  /// Numbers in all matrices: one copy of a tied embedding and head.
  double weights() const;

  /// InputError when the folder, a key or a family is missing, unknown or inconsistent.
  static TargetConfig read(const std::filesystem::path& folder);

  /// The same of a config.json anywhere, on its own.
  static TargetConfig read_file(const std::filesystem::path& file);
};

/// Rotary inverse frequencies [head_dim / 2] of a text within the context of pre-training, in double.
std::vector<double> rope_frequencies(const TargetConfig& config);

/// "bfloat16" | "float16" | "float32"; InputError otherwise.
c10::ScalarType parse_dtype(const std::string& name);
std::string dtype_name(c10::ScalarType dtype);

}  // namespace clover::model
