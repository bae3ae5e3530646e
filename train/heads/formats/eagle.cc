// EAGLE's layout (SafeAILab/EAGLE, commit cb7e084), of EAGLE-1 and -2: a Llama-like config.json, and weights
// with fc and layers.0 without input_layernorm; maybe a copy of the target's embedding.
#include "data/files/error.h"
#include "train/heads/formats/eagle_layout.h"

namespace clover::train {
namespace {

using nlohmann::json;

std::string name_of(const std::string& own) {
  constexpr std::string_view of_layer = "decoder.layer.";
  if (own.starts_with(of_layer)) return decoder_layer_name(own.substr(of_layer.size()), "layers.0");
  if (own == "fc.weight" || own == "fc.bias") return own;
  throw data::InputError("Tensor " + own + " has no name in EAGLE's layout.");
}

HeadsImport take_over(const PublishedFolder& folder, const model::TargetConfig& target) {
  require_safetensors(folder);
  PublishedConfig keys(folder.config, folder.config_file());
  json settings = eagle_layer_settings(keys, target);
  settings["fc_bias"] = keys.flag("bias", true);
  keys.finish();
  return {.kind = "eagle",
          .settings = std::move(settings),
          .weights = folder.path,
          .name_of = name_of,
          .embedding_copies = {"embed_tokens.weight"}};
}

}  // namespace

HeadsFormat eagle_format() {
  return {"eagle",
          "eagle",
          "SafeAILab's of EAGLE-1 and -2: config.json, model.safetensors",
          "a Llama-like config.json, and fc.weight in model.safetensors",
          [](const PublishedFolder& folder) {
            return folder.config.is_object() && folder.config.contains("num_attention_heads") &&
                   !folder.config.contains("draft_vocab_size") &&
                   (has_tensor(folder, "fc.weight") ||
                    (folder.holds("pytorch_model.bin") && !folder.holds_safetensors()));
          },
          take_over,
          nullptr};
}

}  // namespace clover::train
