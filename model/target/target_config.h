#pragma once

#include <c10/core/ScalarType.h>

#include <filesystem>
#include <string>
#include <vector>

#include "model/target/rope.h"

namespace clover::model {

/// The configuration of a target, from `config.json` and `generation_config.json` of a Hugging Face folder.
struct TargetConfig {
  std::string family;  // model_type: llama, mistral, qwen2 or qwen3
  int64_t hidden = 0;  // hidden size H
  int64_t layers = 0;
  int64_t heads = 0;          // query heads Hq
  int64_t kv_heads = 0;       // key and value heads Hkv
  int64_t head_dim = 0;       // d
  int64_t intermediate = 0;   // width I of the MLP
  int64_t vocab = 0;          // vocabulary size V
  int64_t context = 0;        // max tokens of a text, prompt and answer
  int64_t window = 0;         // sliding window of attention, in tokens; no text may be longer; 0: no window
  double norm_eps = 1e-5;     // of RMSNorm
  Rope rope;                  // rotary position embedding
  bool qkv_bias = false;      // queries, keys and values have a bias (Qwen2)
  bool head_norms = false;    // RMSNorm of each head of queries and keys (Qwen3)
  bool tied_head = false;     // the LM head is the input embedding
  bool tie_unstated = false;  // config.json has no "tie_word_embeddings": tied if no LM head is stored
  c10::ScalarType stored_dtype = c10::ScalarType::BFloat16;  // of the weights in the folder
  bool dtype_unstated = false;     // config.json has no dtype: `read` takes that of the weights
  std::vector<int64_t> end_ids;    // "eos_token_id": tokens that end an answer
  std::vector<std::string> notes;  // warnings for the user, one line each

  int64_t query_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }

  /// The settings that change what the network computes, as a JSON object.  Targets with equal weights may
  /// differ in them.
  nlohmann::json network_settings() const;

  /// The number of parameters in the matrices of all layers.
  double layer_parameter_count() const;
  /// The number of parameters in all matrices; a tied embedding and LM head count once.
  double parameter_count() const;

  /// Reads both files of a folder.  InputError when it or a key is missing, or a value is not supported.
  static TargetConfig read(const std::filesystem::path& folder);

  /// Reads a config.json alone.
  static TargetConfig read_file(const std::filesystem::path& file);
};

/// Rotary inverse frequencies [head_dim / 2] of a text no longer than the pre-training context.
std::vector<double> rope_frequencies(const TargetConfig& config);

/// The dtype named "bfloat16", "float16" or "float32"; InputError for other names.  dtype_name is the
/// inverse.
c10::ScalarType parse_dtype(const std::string& name);
std::string dtype_name(c10::ScalarType dtype);

}  // namespace clover::model
