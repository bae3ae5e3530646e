#include "model/target_config.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <set>

#include "data/error.h"
#include "data/files.h"
#include "kernels/attention.h"

namespace clover::model {
namespace {

using data::InputError;
using kernels::largest_head_size;
using kernels::most_queries_a_key;
using nlohmann::json;

// Those that differ from Llama in their projections of queries and keys at most.
const std::set<std::string> families{"llama", "mistral", "qwen2", "qwen3"};

/// Reads typed keys of one JSON object with messages that name file and key.
class Keys {
 public:
  Keys(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  bool has(const std::string& key) const { return object_.contains(key) && !object_.at(key).is_null(); }
  bool is_null(const std::string& key) const { return object_.contains(key) && object_.at(key).is_null(); }

  int64_t positive(const std::string& key) const {
    const json& value = at(key);
    // A hundred million is far beyond any model's dimension and far below an overflow of their products.
    if (!value.is_number_integer() || value.get<int64_t>() <= 0 || value.get<int64_t>() > 100'000'000) {
      throw InputError(where_ + ": \"" + key + "\" is " + value.dump() + ", expected a positive integer.");
    }
    return value.get<int64_t>();
  }
  int64_t positive_or(const std::string& key, int64_t fallback) const {
    return has(key) ? positive(key) : fallback;
  }

  double number_or(const std::string& key, double fallback) const {
    return has(key) ? number(key) : fallback;
  }
  double number(const std::string& key) const {
    const json& value = at(key);
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() <= 0) {
      throw InputError(where_ + ": \"" + key + "\" is " + value.dump() + ", expected a positive number.");
    }
    return value.get<double>();
  }
  bool flag_or(const std::string& key, bool fallback) const {
    if (!has(key)) return fallback;
    if (!at(key).is_boolean()) {
      throw InputError(where_ + ": \"" + key + "\" is " + at(key).dump() + ", expected true or false.");
    }
    return at(key).get<bool>();
  }
  std::string text_or(const std::string& key, const std::string& fallback) const {
    if (!has(key)) return fallback;
    if (!at(key).is_string()) {
      throw InputError(where_ + ": \"" + key + "\" is " + at(key).dump() + ", expected a string.");
    }
    return at(key).get<std::string>();
  }

 private:
  const json& at(const std::string& key) const {
    if (!has(key)) throw InputError(where_ + ": \"" + key + "\" is missing.");
    return object_.at(key);
  }
  const json& object_;
  std::string where_;
};

RopeScaling read_rope_scaling(const json& config, const std::string& where, double& theta) {
  RopeScaling scaling;
  // Newer folders write "rope_parameters" (theta included), older ones "rope_scaling".
  const char* key = config.contains("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!config.contains(key) || config.at(key).is_null()) return scaling;
  if (!config.at(key).is_object()) {
    throw InputError(where + ": \"" + key + "\" is " + config.at(key).dump() + ", expected an object.");
  }
  const Keys keys(config.at(key), where + ", " + key);
  theta = keys.number_or("rope_theta", theta);
  const std::string kind = keys.text_or("rope_type", keys.text_or("type", "default"));
  if (kind == "default") return scaling;
  if (kind == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
  } else if (kind == "llama3") {
    scaling.kind = RopeScaling::Kind::llama3;
    scaling.low_freq_factor = keys.number_or("low_freq_factor", 1);
    scaling.high_freq_factor = keys.number_or("high_freq_factor", 4);
    scaling.original_context = keys.positive_or("original_max_position_embeddings", 8192);
    if (scaling.high_freq_factor <= scaling.low_freq_factor) {
      throw InputError(where + ": high_freq_factor must be larger than low_freq_factor.");
    }
  } else {
    throw InputError(where + ": rope scaling \"" + kind +
                     "\" is not supported; expected default, linear or llama3.");
  }
  scaling.factor = keys.number("factor");
  return scaling;
}

/// How far back a row sees: every text up to that length is read as if there were no window.
int64_t window_of(const Keys& keys, const std::string& family) {
  constexpr int64_t none = std::numeric_limits<int64_t>::max();
  if (family == "mistral")
    return keys.is_null("sliding_window") ? none : keys.positive_or("sliding_window", 4096);
  if (!family.starts_with("qwen") || !keys.flag_or("use_sliding_window", false)) return none;
  return keys.positive_or("sliding_window", none);
}

void read_end_ids(const json& object, std::vector<int64_t>& ids) {
  if (!object.contains("eos_token_id") || object.at("eos_token_id").is_null()) return;
  const json& value = object.at("eos_token_id");
  ids.clear();
  for (const json& id : value.is_array() ? value : json::array({value})) {
    // What is no id of the vocabulary ends nothing; infer::end_token_notes says so.
    const double number = id.is_number() ? id.get<double>() : -1;
    if (number >= 0 && number <= 1e9 && number == std::floor(number))
      ids.push_back(static_cast<int64_t>(number));
  }
}

}  // namespace

TargetConfig TargetConfig::read(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder)) {
    throw InputError("Target folder " + folder.string() +
                     (std::filesystem::exists(folder) ? " is no folder" : " does not exist") +
                     ": give a Hugging Face model folder (scripts/setup "
                     "makes models/SmolLM2-135M-Instruct).");
  }
  TargetConfig result = read_file(folder / "config.json");
  if (std::filesystem::exists(folder / "generation_config.json")) {
    const json generation = data::read_json(folder / "generation_config.json");
    if (generation.is_object()) read_end_ids(generation, result.end_ids);
  }
  return result;
}

TargetConfig TargetConfig::read_file(const std::filesystem::path& file) {
  const json config = data::read_json(file);
  if (!config.is_object()) throw InputError(file.string() + ": expected a JSON object.");
  const Keys keys(config, file.string());

  TargetConfig result;
  result.family = keys.text_or("model_type", "");
  if (!families.contains(result.family)) {
    throw InputError(file.string() + ": model_type \"" + result.family +
                     "\" is not supported; supported: llama, mistral, qwen2 and qwen3.");
  }
  result.qkv_bias = result.family == "qwen2";
  result.head_norms = result.family == "qwen3";
  for (const char* bias : {"attention_bias", "mlp_bias"}) {
    if (keys.flag_or(bias, false))
      throw InputError(file.string() + ": \"" + bias + "\" true is not supported.");
  }
  if (keys.text_or("hidden_act", "silu") != "silu") {
    throw InputError(file.string() + ": hidden_act \"" + keys.text_or("hidden_act", "") +
                     "\" is not supported; expected silu.");
  }
  result.hidden = keys.positive("hidden_size");
  result.layers = keys.positive("num_hidden_layers");
  result.heads = keys.positive("num_attention_heads");
  result.kv_heads = keys.positive_or("num_key_value_heads", result.heads);
  result.head_dim = keys.positive_or("head_dim", result.head_norms ? 128 : result.hidden / result.heads);
  result.intermediate = keys.positive("intermediate_size");
  result.vocab = keys.positive("vocab_size");
  result.context =
      std::min(keys.positive_or("max_position_embeddings", 2048), window_of(keys, result.family));
  result.rope_theta = keys.number_or("rope_theta", 10000);
  result.rope_scaling = read_rope_scaling(config, file.string(), result.rope_theta);
  result.norm_eps = keys.number_or("rms_norm_eps", 1e-6);
  result.tied_head = keys.flag_or("tie_word_embeddings", false);
  result.tie_unstated = !keys.has("tie_word_embeddings");
  try {
    result.stored_dtype = parse_dtype(keys.text_or("dtype", keys.text_or("torch_dtype", "bfloat16")));
  } catch (const InputError& error) {
    throw InputError(file.string() + ": " + error.what());
  }
  if (result.heads % result.kv_heads != 0 || result.head_dim % 8 != 0) {
    throw InputError(
        file.string() +
        ": expected num_attention_heads to be a multiple of num_key_value_heads and head_dim of 8, found " +
        std::to_string(result.heads) + ", " + std::to_string(result.kv_heads) + " and " +
        std::to_string(result.head_dim) + ".");
  }
  if (result.head_dim > largest_head_size || result.heads / result.kv_heads > most_queries_a_key) {
    throw InputError(file.string() + ": expected head_dim up to " + std::to_string(largest_head_size) +
                     " and up to " + std::to_string(most_queries_a_key) + " query heads a key head, found " +
                     std::to_string(result.head_dim) + " and " +
                     std::to_string(result.heads / result.kv_heads) + ".");
  }
  read_end_ids(config, result.end_ids);
  return result;
}

// In floating point: products of four numbers that a file may have made huge.
double TargetConfig::weights() const {
  const double wide = static_cast<double>(hidden);
  const double attention = wide * static_cast<double>(2 * (query_width() + kv_width()));
  const double mlp = 3 * wide * static_cast<double>(intermediate);
  return static_cast<double>(layers) * (attention + mlp) +
         static_cast<double>(vocab) * wide * (tied_head ? 1 : 2);
}

std::vector<double> rope_frequencies(const TargetConfig& config) {
  std::vector<double> frequencies(config.head_dim / 2);
  const RopeScaling& scaling = config.rope_scaling;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double frequency =
        std::pow(config.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim));
    if (scaling.kind == RopeScaling::Kind::linear) frequency /= scaling.factor;
    if (scaling.kind == RopeScaling::Kind::llama3) {
      const double turns = static_cast<double>(scaling.original_context) * frequency / (2 * std::numbers::pi);
      // Slow rotations are stretched by the factor, fast ones kept, those between blended.
      const double keep = std::clamp(
          (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor), 0.0, 1.0);
      frequency = keep * frequency + (1 - keep) * frequency / scaling.factor;
    }
    frequencies[i] = frequency;
  }
  return frequencies;
}

c10::ScalarType parse_dtype(const std::string& name) {
  if (name == "bfloat16") return c10::ScalarType::BFloat16;
  if (name == "float16") return c10::ScalarType::Half;
  if (name == "float32") return c10::ScalarType::Float;
  throw InputError("dtype \"" + name + "\" is not supported; expected bfloat16, float16 or float32.");
}

std::string dtype_name(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::BFloat16:
      return "bfloat16";
    case c10::ScalarType::Half:
      return "float16";
    case c10::ScalarType::Float:
      return "float32";
    default:
      return c10::toString(dtype);
  }
}

}  // namespace clover::model
