#include "train/heads/formats/eagle_layout.h"

#include <ATen/ATen.h>

#include <cmath>

#include "data/files/error.h"

namespace clover::train {

using data::InputError;
using nlohmann::json;

void require_safetensors(const PublishedFolder& folder) {
  if (folder.holds_safetensors()) return;
  if (folder.holds("pytorch_model.bin")) refuse_pickle(folder, "pytorch_model.bin", "model.safetensors");
  throw InputError(folder.path.string() + ": expected model.safetensors, found none.");
}

bool has_tensor(const PublishedFolder& folder, const std::string& name) {
  return folder.holds_safetensors() && data::SafetensorsReader::open(folder.path).contains(name);
}

namespace {

/// Checks the sizes, activation and biases of a Llama-like layer.  Our layer has the target's sizes.  Returns
/// the value of setting "mlp_width".
int64_t check_eagle_layer(PublishedConfig& keys, const model::TargetConfig& target) {
  const auto expect_target_size = [&](const char* key, int64_t size) {
    keys.expect(key, {size, nullptr}, "the layer has the sizes of the target's");
  };
  expect_target_size("hidden_size", target.hidden);
  const int64_t width = keys.count("intermediate_size", target.intermediate);
  expect_target_size("vocab_size", target.vocab);
  expect_target_size("head_dim", target.head_dim);
  const int64_t heads = keys.count("num_attention_heads", target.heads);
  if (heads != target.heads)
    keys.refuse("have " + std::to_string(heads) + " attention heads, and the target has " +
                std::to_string(target.heads));
  if (const int64_t kv_heads = keys.count("num_key_value_heads", heads); kv_heads != target.kv_heads)
    keys.refuse("have " + std::to_string(kv_heads) + " heads of keys and values, and the target has " +
                std::to_string(target.kv_heads));
  keys.expect("hidden_act", {"silu", nullptr}, "the MLP has this activation");
  for (const char* key : {"attention_bias", "mlp_bias", "qkv_bias"})
    keys.expect(key, {false, nullptr}, "the layer has no biases");
  keys.expect("num_hidden_layers", {1, nullptr}, "the heads have one layer");
  keys.expect("pretraining_tp", {1, nullptr}, "its matrices are not cut");
  keys.expect("sliding_window", {nullptr}, "attention has no window");
  keys.expect("is_causal", {true, nullptr}, "attention is causal");
  keys.expect("logit_scale", {1, 1.0, nullptr}, "logits are not scaled");
  return width == target.intermediate ? 0 : width;
}

/// The base of the layer's RoPE: "rope_theta", or 10000.  InputError for scaled positions.
double eagle_rope_theta(PublishedConfig& keys) {
  double theta = 10000;
  const auto read_theta = [&](const json& value) {
    if (value.is_null()) return;
    if (!value.is_number() || !(value.get<double>() >= 1) || !std::isfinite(value.get<double>()))
      keys.refuse("have a \"rope_theta\" of " + value.dump().substr(0, 80) + ", expected a number from 1");
    theta = value.get<double>();
  };
  read_theta(keys.value("rope_theta"));
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json scaling = keys.value(key);
    if (scaling.is_null()) continue;
    if (!scaling.is_object() ||
        scaling.value("rope_type", scaling.value("type", json("default"))) != "default")
      keys.refuse("scale positions (\"" + std::string(key) + "\"), which is not supported");
    read_theta(scaling.value("rope_theta", json()));
  }
  return theta;
}

}  // namespace

json eagle_layer_settings(PublishedConfig& keys, const model::TargetConfig& target) {
  const int64_t width = check_eagle_layer(keys, target);
  return {{"mlp_width", width},
          {"norm_eps", norm_eps_setting(target, keys)},
          {"rope_theta", rope_theta_setting(target, eagle_rope_theta(keys))}};
}

void check_eagle3_keys(PublishedConfig& keys, const model::TargetConfig& target) {
  keys.expect("target_hidden_size", {target.hidden, nullptr}, "its layers read the target's streams");
  keys.expect("architectures",
              {nullptr, json::array({"LlamaForCausalLM"}), json::array({"LlamaForCausalLMEagle3"})},
              "other classes mean other things by norm_output and numbers of layers");
  keys.expect("norm_output", {true, nullptr}, "a norm stands before the vocabulary");
  keys.expect("fc_norm", {false, nullptr}, "no norm stands before fc");
}

std::string eagle3_published_name(const std::string& clover_name, const std::string& layer) {
  constexpr std::string_view layer_prefix = "decoder.layer.";
  if (clover_name.starts_with(layer_prefix))
    return published_layer_name(clover_name.substr(layer_prefix.size()), layer);
  if (clover_name == "vocabulary.weight") return "lm_head.weight";
  if (clover_name == "fc.weight" || clover_name == "norm.weight") return clover_name;
  if (clover_name == "input_layernorm.weight" || clover_name == "hidden_norm.weight")
    return layer + "." + clover_name;
  throw InputError("Tensor " + clover_name + " has no name in the layouts of EAGLE-3 heads.");
}

HeadsImport eagle3_import(const PublishedFolder& folder, const model::TargetConfig& target, json settings,
                          const std::string& layer) {
  const auto reader = data::SafetensorsReader::open(folder.path);
  const bool has_lm_head = reader.contains("lm_head.weight");
  HeadsImport result{.kind = "eagle3",
                     .settings = std::move(settings),
                     .weights = folder.path,
                     .published_name =
                         [layer, has_lm_head](const std::string& clover_name) {
                           return clover_name == "vocabulary.weight" && !has_lm_head
                                      ? std::string()
                                      : eagle3_published_name(clover_name, layer);
                         },
                     .embedding_copies = {"embed_tokens.weight"}};
  if (!reader.contains("d2t")) return result;
  result.other_tensors = {"d2t", "t2d"};
  // d2t [V']: the token id of each row minus its index; t2d [V]: whether the draft vocabulary has the token.
  const at::Tensor offsets = reader.read("d2t");
  if (offsets.dim() != 1 || !at::isIntegralType(offsets.scalar_type(), false))
    throw InputError(folder.path.string() + ": tensor d2t must hold integers in one dimension.");
  result.token_ids = offsets.to(at::kLong) + at::arange(offsets.size(0), at::kLong);
  if (reader.contains("t2d")) {
    const at::Tensor t2d_ids = reader.read("t2d", {target.vocab}).to(at::kBool).nonzero().flatten();
    if (!at::equal(t2d_ids, std::get<0>(result.token_ids.sort())))
      throw InputError(folder.path.string() + ": tensors d2t and t2d name different draft vocabularies.");
  }
  return result;
}

}  // namespace clover::train
