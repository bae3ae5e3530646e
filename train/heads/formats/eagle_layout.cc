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

/// Checks the keys of a Llama-like layer against the target, whose sizes ours has: sizes, activation, biases.
/// Returns the value for setting "mlp_width".
int64_t check_eagle_layer(PublishedConfig& keys, const model::TargetConfig& target) {
  const auto as_target = [&](const char* key, int64_t own) {
    keys.expect(key, {own, nullptr}, "the layer has the sizes of the target's");
  };
  as_target("hidden_size", target.hidden);
  const int64_t width = keys.count("intermediate_size", target.intermediate);
  as_target("vocab_size", target.vocab);
  as_target("head_dim", target.head_dim);
  const int64_t heads = keys.count("num_attention_heads", target.heads);
  if (heads != target.heads)
    keys.refuse("have " + std::to_string(heads) + " attention heads, and the target has " +
                std::to_string(target.heads));
  if (const int64_t groups = keys.count("num_key_value_heads", heads); groups != target.kv_heads)
    keys.refuse("have " + std::to_string(groups) + " heads of keys and values, and the target has " +
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

/// The base of the layer's rotary positions: "rope_theta", or 10000.  InputError for scaled positions.
double eagle_rope_theta(PublishedConfig& keys) {
  double theta = 10000;
  const auto read = [&](const json& found) {
    if (found.is_null()) return;
    if (!found.is_number() || !(found.get<double>() >= 1) || !std::isfinite(found.get<double>()))
      keys.refuse("have a \"rope_theta\" of " + found.dump().substr(0, 80) + ", expected a number from 1");
    theta = found.get<double>();
  };
  read(keys.value("rope_theta"));
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json scaling = keys.value(key);
    if (scaling.is_null()) continue;
    if (!scaling.is_object() ||
        scaling.value("rope_type", scaling.value("type", json("default"))) != "default")
      keys.refuse("scale positions (\"" + std::string(key) + "\"), which is not supported");
    read(scaling.value("rope_theta", json()));
  }
  return theta;
}

}  // namespace

json eagle_layer_settings(PublishedConfig& keys, const model::TargetConfig& target) {
  const int64_t width = check_eagle_layer(keys, target);
  return {{"mlp_width", width},
          {"norm_eps", own_norm_eps(target, keys)},
          {"rope_theta", own_rope_theta(target, eagle_rope_theta(keys))}};
}

void check_eagle3_keys(PublishedConfig& keys, const model::TargetConfig& target) {
  keys.expect("target_hidden_size", {target.hidden, nullptr}, "its layers read the target's streams");
  keys.expect("architectures",
              {nullptr, json::array({"LlamaForCausalLM"}), json::array({"LlamaForCausalLMEagle3"})},
              "other classes mean other things by norm_output and numbers of layers");
  keys.expect("norm_output", {true, nullptr}, "a norm stands before the vocabulary");
  keys.expect("fc_norm", {false, nullptr}, "no norm stands before fc");
}

std::string eagle3_name(const std::string& own, const std::string& layer) {
  constexpr std::string_view of_layer = "decoder.layer.";
  if (own.starts_with(of_layer)) return decoder_layer_name(own.substr(of_layer.size()), layer);
  if (own == "vocabulary.weight") return "lm_head.weight";
  if (own == "fc.weight" || own == "norm.weight") return own;
  if (own == "input_layernorm.weight" || own == "hidden_norm.weight") return layer + "." + own;
  throw InputError("Tensor " + own + " has no name in the layouts of EAGLE-3 heads.");
}

HeadsImport eagle3_import(const PublishedFolder& folder, const model::TargetConfig& target, json settings,
                          const std::string& layer) {
  const auto reader = data::SafetensorsReader::open(folder.path);
  const bool own_vocabulary = reader.contains("lm_head.weight");
  HeadsImport taken{.kind = "eagle3",
                    .settings = std::move(settings),
                    .weights = folder.path,
                    .name_of =
                        [layer, own_vocabulary](const std::string& own) {
                          return own == "vocabulary.weight" && !own_vocabulary ? std::string()
                                                                               : eagle3_name(own, layer);
                        },
                    .embedding_copies = {"embed_tokens.weight"}};
  if (!reader.contains("d2t")) return taken;
  taken.others = {"d2t", "t2d"};
  const at::Tensor shift = reader.read("d2t");
  if (shift.dim() != 1 || !at::isIntegralType(shift.scalar_type(), false))
    throw InputError(folder.path.string() + ": tensor d2t must hold integers in one dimension.");
  taken.tokens = shift.to(at::kLong) + at::arange(shift.size(0), at::kLong);
  if (reader.contains("t2d")) {
    const at::Tensor said = reader.read("t2d", {target.vocab}).to(at::kBool).nonzero().flatten();
    if (!at::equal(said, std::get<0>(taken.tokens.sort())))
      throw InputError(folder.path.string() + ": tensors d2t and t2d name different draft vocabularies.");
  }
  return taken;
}

}  // namespace clover::train
