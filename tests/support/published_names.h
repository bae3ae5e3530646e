#pragma once

#include <string>
#include <utility>

namespace clover::test {

/// The name that Apple's checkpoints give to a parameter of ReDrafter heads with `layers` residual blocks.
inline std::string name_of_apple(const std::string& name, int64_t layers) {
  const std::pair<std::string, std::string> begins[] = {
      {"cell.token.", "rnn_w."},
      {"cell.state.", "rnn_u."},
      {"projection.", "input_proj."},
      {"block", "lm_head."},
      {"vocabulary.", "lm_head." + std::to_string(layers) + "."}};
  for (const auto& [own, theirs] : begins)
    if (name.starts_with(own)) return theirs + name.substr(own.size());
  return name;
}

/// The name that SafeAILab's checkpoints give to a parameter of heads of `kind` eagle or eagle3.
inline std::string name_of_safe_ai_lab(const std::string& name, const std::string& kind) {
  const std::string layer = "decoder.layer.";
  if (name == "vocabulary.weight") return "lm_head.weight";
  const std::string own = kind == "eagle3" ? "midlayer." : "layers.0.";
  if (name == "input_layernorm.weight" || name == "hidden_norm.weight") return own + name;
  if (!name.starts_with(layer)) return name;
  const std::string rest = name.substr(layer.size());
  const char* part = rest.starts_with("post")                    ? ""
                     : rest.find("_proj") == 1 && rest[0] != 'g' ? "self_attn."
                                                                 : "mlp.";
  return own + part + rest;
}

}  // namespace clover::test
