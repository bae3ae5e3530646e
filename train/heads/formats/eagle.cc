// The layout of EAGLE-1 and EAGLE-2 heads (SafeAILab/EAGLE, commit cb7e084): a Llama-like config.json;
// weights with fc, a decoder layer layers.0 without input_layernorm, and maybe a copy of the target's
// embedding.
#include "data/files/error.h"
#include "train/heads/formats/eagle_layout.h"

namespace clover::train {
namespace {

using nlohmann::json;

std::string eagle_published_name(const std::string& clover_name) {
  constexpr std::string_view layer_prefix = "decoder.layer.";
  if (clover_name.starts_with(layer_prefix))
    return published_layer_name(clover_name.substr(layer_prefix.size()), "layers.0");
  if (clover_name == "fc.weight" || clover_name == "fc.bias") return clover_name;
  throw data::InputError("Tensor " + clover_name + " has no name in EAGLE's layout.");
}

HeadsImport import_eagle(const PublishedFolder& folder, const model::TargetConfig& target) {
  require_safetensors(folder);
  PublishedConfig keys(folder.config, folder.config_file());
  json settings = eagle_layer_settings(keys, target);
  settings["fc_bias"] = keys.flag("bias", true);
  keys.finish();
  return {.kind = "eagle",
          .settings = std::move(settings),
          .weights = folder.path,
          .published_name = eagle_published_name,
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
          import_eagle,
          nullptr};
}

}  // namespace clover::train
