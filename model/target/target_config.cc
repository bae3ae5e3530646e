#include "model/target/target_config.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <set>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/safetensors.h"
#include "kernels/attention/attention.h"

namespace clover::model {
namespace {

using data::InputError;
using kernels::max_head_size;
using kernels::max_query_heads_per_kv_head;
using nlohmann::json;

// Values of "model_type" with Llama's architecture, apart from biases and norms of queries and keys.
const std::set<std::string> supported_families{"llama", "mistral", "qwen2", "qwen3"};

/// max_position_embeddings, or transformers' default for the family.
int64_t positions_of(const ConfigKeys& keys, const std::string& family) {
  const int64_t default_positions = family == "llama" ? 2048 : family == "mistral" ? 131072 : 32768;
  return keys.positive_integer_or("max_position_embeddings", default_positions);
}

/// The context length before RoPE scaling, as vLLM reads it from config.json: "model_max_length", or else the
/// smallest of the lengths that the file has, or else `positions` (positions_of).
int64_t stated_length(const json& config, int64_t positions) {
  const auto length_of = [&config](const char* key) {  // 0: absent
    const auto found = config.find(key);
    const bool is_length = found != config.end() && found->is_number_integer() && *found > json(0);
    return is_length && *found <= json(ConfigKeys::max_integer) ? found->get<int64_t>() : 0;
  };
  if (const int64_t length = length_of("model_max_length"); length > 0) return length;
  const bool stated = length_of("max_position_embeddings") > 0;
  int64_t shortest = stated ? positions : 0;
  for (const char* key : {"n_positions", "max_seq_len", "seq_length", "max_target_positions",
                          "max_sequence_length", "max_seq_length", "seq_len"}) {
    const int64_t length = length_of(key);
    if (length > 0) shortest = shortest > 0 ? std::min(shortest, length) : length;
  }
  return shortest > 0 ? shortest : positions;
}

/// The length of the sliding window in tokens; 0: no window.  It changes nothing for texts up to its length.
int64_t window_of(const ConfigKeys& keys, const std::string& family) {
  constexpr int64_t none = 0;
  const bool qwen = family.starts_with("qwen");
  if (family != "mistral" && !(qwen && keys.flag_or("use_sliding_window", false))) return none;
  return keys.is_null("sliding_window") ? none : keys.positive_integer_or("sliding_window", 4096);
}

/// Reads "dtype" (transformers 5) or else "torch_dtype" (transformers 4).
void read_dtype(const ConfigKeys& keys, TargetConfig& config) {
  std::string name = keys.text_or("dtype", keys.text_or("torch_dtype", "auto"));
  config.dtype_unstated = name == "auto";
  if (config.dtype_unstated) return;
  if (name == "float") name = "float32";  // PyTorch's other names
  if (name == "half") name = "float16";
  try {
    config.stored_dtype = parse_dtype(name);
  } catch (const InputError& error) {
    throw InputError(keys.where() + ": " + error.what());
  }
}

/// The dtype of the first floating-point tensor of the first file, as in transformers; fp64 is read as fp32.
c10::ScalarType dtype_of_weights(const std::filesystem::path& folder) {
  try {
    const c10::ScalarType dtype = data::SafetensorsReader::open(folder).first_float_dtype();
    return dtype == c10::ScalarType::Double ? c10::ScalarType::Float : dtype;
  } catch (const InputError&) {  // loading the weights will report the error
    return c10::ScalarType::BFloat16;
  }
}

/// Reads "eos_token_id", a number or a list, if the file has it.
void read_end_ids(const json& object, std::vector<int64_t>& ids) {
  if (!object.contains("eos_token_id") || object.at("eos_token_id").is_null()) return;
  const json& value = object.at("eos_token_id");
  ids.clear();
  for (const json& id : value.is_array() ? value : json::array({value})) {
    // An id outside the vocabulary never ends an answer; infer::end_token_warnings warns about it.
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
  if (result.dtype_unstated) result.stored_dtype = dtype_of_weights(folder);
  if (std::filesystem::exists(folder / "generation_config.json")) {
    const json generation = data::read_json(folder / "generation_config.json");
    if (generation.is_object()) read_end_ids(generation, result.end_ids);
  }
  return result;
}

TargetConfig TargetConfig::read_file(const std::filesystem::path& file) {
  const json config = data::read_json(file);
  if (!config.is_object()) throw InputError(file.string() + ": expected a JSON object.");
  const ConfigKeys keys(config, file.string());

  TargetConfig result;
  result.family = keys.text_or("model_type", "");
  if (!supported_families.contains(result.family)) {
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
  result.hidden = keys.positive_integer("hidden_size");
  result.layers = keys.positive_integer("num_hidden_layers");
  result.heads = keys.positive_integer("num_attention_heads");
  result.kv_heads = keys.positive_integer_or("num_key_value_heads", result.heads);
  result.head_dim =
      keys.positive_integer_or("head_dim", result.head_norms ? 128 : result.hidden / result.heads);
  result.intermediate = keys.positive_integer("intermediate_size");
  result.vocab = keys.positive_integer("vocab_size");
  const int64_t positions = positions_of(keys, result.family);
  result.rope = read_rope(config, file.string(), result.head_dim, positions, result.notes);
  result.window = window_of(keys, result.family);
  result.context = result.rope.context(stated_length(config, positions));
  if (result.window > 0) result.context = std::min(result.context, result.window);
  result.norm_eps = keys.positive_number_or("rms_norm_eps", 1e-6);
  result.tied_head = keys.flag_or("tie_word_embeddings", false);
  result.tie_unstated = !keys.has("tie_word_embeddings");
  read_dtype(keys, result);
  if (result.heads % result.kv_heads != 0 || result.head_dim % 8 != 0) {
    throw InputError(
        file.string() +
        ": expected num_attention_heads to be a multiple of num_key_value_heads and head_dim of 8, found " +
        std::to_string(result.heads) + ", " + std::to_string(result.kv_heads) + " and " +
        std::to_string(result.head_dim) + ".");
  }
  if (result.head_dim > max_head_size || result.heads / result.kv_heads > max_query_heads_per_kv_head) {
    throw InputError(file.string() + ": expected head_dim up to " + std::to_string(max_head_size) +
                     " and up to " + std::to_string(max_query_heads_per_kv_head) +
                     " query heads a key head, found " + std::to_string(result.head_dim) + " and " +
                     std::to_string(result.heads / result.kv_heads) + ".");
  }
  read_end_ids(config, result.end_ids);
  return result;
}

// In double, since a file may state huge numbers whose product overflows.
double TargetConfig::layer_parameter_count() const {
  const double width = static_cast<double>(hidden);
  const double attention = width * static_cast<double>(2 * (query_width() + kv_width()));
  const double mlp = 3 * width * static_cast<double>(intermediate);
  return static_cast<double>(layers) * (attention + mlp);
}

double TargetConfig::parameter_count() const {
  return layer_parameter_count() +
         static_cast<double>(vocab) * static_cast<double>(hidden) * (tied_head ? 1 : 2);
}

// tied_head is left out: the fingerprint of the weights covers it.
json TargetConfig::network_settings() const {
  return {{"model_type", family},     {"hidden_size", hidden},    {"num_hidden_layers", layers},
          {"vocab_size", vocab},      {"num_heads", heads},       {"num_key_value_heads", kv_heads},
          {"head_dim", head_dim},     {"rms_norm_eps", norm_eps}, {"intermediate_size", intermediate},
          {"sliding_window", window}, {"rope", rope.settings()}};
}

std::vector<double> rope_frequencies(const TargetConfig& config) {
  return config.rope.frequencies(config.head_dim, 0);
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
