// SafeAILab's layout of EAGLE-3 heads (SafeAILab/EAGLE, commit cb7e084): a Llama-like config.json with
// draft_vocab_size, and a decoder layer named midlayer.  The heads read the residual stream after layers
// 2, N / 2 and N - 3 of the target's N, counted from 1, which is the default of setting tap_layers.
// eagle_layout.cc checks the sizes in config.json, PublishedHeads::read_into the shapes of tensors.
#include "train/heads/formats/eagle_layout.h"

namespace clover::train {
namespace {

using nlohmann::json;

HeadsImport import_eagle3(const PublishedFolder& folder, const model::TargetConfig& target) {
  require_safetensors(folder);
  PublishedConfig keys(folder.config, folder.config_file());
  json settings = eagle_layer_settings(keys, target);
  keys.count("draft_vocab_size");
  check_eagle3_keys(keys, target);
  keys.ignore({"bias"});  // EAGLE-3's fc has no bias, whatever this key says
  keys.finish();
  if (target.layers < 7)
    keys.refuse("tap the streams that enter layers 2, N / 2 and N - 3, which are not three of " +
                std::to_string(target.layers) + " layers");
  return eagle3_import(folder, target, std::move(settings), "midlayer");
}

}  // namespace

HeadsFormat eagle3_format() {
  return {"eagle3",
          "eagle3",
          "SafeAILab's of EAGLE-3: config.json, model.safetensors with midlayer",
          "config.json with \"draft_vocab_size\"",
          [](const PublishedFolder& folder) {
            return folder.config.is_object() && folder.config.contains("draft_vocab_size");
          },
          import_eagle3,
          nullptr};
}

}  // namespace clover::train
