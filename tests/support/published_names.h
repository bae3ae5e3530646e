#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <functional>
#include <string>
#include <utility>

#include "data/files/safetensors.h"
#include "model/drafters/drafter.h"

namespace clover::test {

/// The name that Apple's checkpoints give to a parameter of ReDrafter heads with `layers` residual blocks.
inline std::string name_of_apple(const std::string& name, int64_t layers) {
  const std::pair<std::string, std::string> prefixes[] = {
      // ours, theirs
      {"cell.token.", "rnn_w."},
      {"cell.state.", "rnn_u."},
      {"projection.", "input_proj."},
      {"block", "lm_head."},
      {"vocabulary.", "lm_head." + std::to_string(layers) + "."}};
  for (const auto& [ours, theirs] : prefixes)
    if (name.starts_with(ours)) return theirs + name.substr(ours.size());
  return name;
}

/// The name of a tensor of our decoder layer within Hugging Face's Llama layer, "q_proj.weight" ->
/// "self_attn.q_proj.weight".
inline std::string name_in_llama_layer(const std::string& name) {
  if (name.find("layernorm") != name.npos) return name;
  const bool of_attention = name.find("_proj") == 1 && name[0] != 'g';
  return (of_attention ? "self_attn." : "mlp.") + name;
}

/// The name that SafeAILab's checkpoints give to a parameter of heads of `kind` eagle or eagle3.
inline std::string name_of_safe_ai_lab(const std::string& name, const std::string& kind) {
  const std::string layer = "decoder.layer.";
  if (name == "vocabulary.weight") return "lm_head.weight";
  const std::string layer_prefix = kind == "eagle3" ? "midlayer." : "layers.0.";
  if (name == "input_layernorm.weight" || name == "hidden_norm.weight") return layer_prefix + name;
  if (!name.starts_with(layer)) return name;
  return layer_prefix + name_in_llama_layer(name.substr(layer.size()));
}

/// The name that Hydra's state dict gives to a parameter, with its prefix layer (Hydra++) or without.
inline std::string name_of_hydra(std::string name, bool prefix) {
  const auto dot = [&] { return name.find('.'); };
  if (name == "prefix_norm.weight") return "prefix_embeding_layer.norm.weight";
  if (name.starts_with("prefix.")) {
    return "prefix_embeding_layer.layers.0." + name_in_llama_layer(name.substr(7));
  }
  if (name.starts_with("vocabulary"))
    return "hydra_lm_head." + name.substr(10, dot() - 10) + (prefix ? ".1" : "") + name.substr(dot());
  const std::string head = name.substr(4, dot() - 4);
  name = name.substr(dot() + 1);
  int block = 0;
  if (name[0] >= '0' && name[0] <= '9') {
    block = name[0] - '0';
    name = name.substr(2);
  }
  if (name.starts_with("residual.")) name = "res_connection." + name.substr(9);
  return "hydra_mlp." + head + "." + std::to_string(prefix ? 2 * block + 1 : block) + "." + name;
}

/// The name that Medusa's checkpoints give to a parameter of heads with one block and vocabularies of their
/// own: "head2.linear.weight" is "2.0.linear.weight", "vocabulary2.weight" is "2.1.weight".
inline std::string name_of_medusa(const std::string& name) {
  const bool block = name.starts_with("head");
  const size_t begin = block ? 4 : 10, dot = name.find('.');
  return name.substr(begin, dot - begin) + (block ? ".0" : ".1") + name.substr(dot);
}

/// Gives the drafter the weights of a published file: name_of(parameter) is the tensor's name there.
inline void take_weights(model::Drafter& drafter, const data::SafetensorsReader& published,
                         const std::function<std::string(const std::string&)>& name_of) {
  const at::NoGradGuard no_grad;
  for (auto& [name, value] : drafter.named_parameters())
    value.copy_(published.read(name_of(name), value.sizes()));
}

}  // namespace clover::test
