// The layout of EAGLE-3 heads of NVIDIA's Model-Optimizer (commit a2fbac7): config.json with "eagle_config",
// and a decoder layer named layers.0, or midlayer before December 2025.  "eagle_config" names the target's
// layers, from 0, whose outputs are read.
#include "train/heads/formats/eagle_layout.h"

namespace clover::train {
namespace {

using nlohmann::json;

HeadsImport import_eagle3_nvidia(const PublishedFolder& folder, const model::TargetConfig& target) {
  require_safetensors(folder);
  const json& eagle_config = folder.config.at("eagle_config");
  PublishedConfig keys(folder.config, folder.config_file()), eagle(eagle_config, folder.config_file());
  json settings = eagle_layer_settings(keys, target);
  keys.ignore({"eagle_config", "draft_vocab_size", "bias"});
  check_eagle3_keys(keys, target);
  keys.expect("norm_before_fc", {false, nullptr}, "no norm stands before fc");
  keys.expect("norm_before_residual", {false, nullptr}, "the layer adds to the feature before its norm");
  keys.finish();
  eagle.expect("use_aux_hidden_state", {true, nullptr}, "the heads read lower layers of the target");
  eagle.expect("use_last_layernorm", {true, nullptr}, "a norm stands before the vocabulary");
  eagle.expect("use_input_layernorm_in_first_layer", {true, nullptr}, "the token's embedding is normed");
  eagle.expect("use_mtp_layernorm", {false, nullptr}, "no other norms stand before fc");
  eagle.expect("next_layer_regular", {true, nullptr}, "the heads have one layer");
  eagle.expect("parallel_draft_step", {1, nullptr}, "a step guesses one token");
  eagle.expect("norm_before_fc", {false, nullptr}, "no norm stands before fc");
  eagle.ignore({"parallel_draft_heads_num_layers"});
  json taps = json::array();
  const json ids = eagle.value("eagle_aux_hidden_state_layer_ids");
  eagle.finish();
  if (!ids.is_null() && !ids.is_array())
    eagle.refuse("tap " + ids.dump().substr(0, 80) + ", no list of layers");
  for (const json& id : ids) {  // counts layers from 0, tap_layers from 1
    if (!id.is_number_integer() || id < 0 || id > 1'000'000)
      eagle.refuse("tap " + id.dump().substr(0, 80) + ", no number of a layer");
    taps.push_back(id.get<int64_t>() + 1);
  }
  settings["tap_layers"] = taps;
  return eagle3_import(folder, target, std::move(settings),
                       has_tensor(folder, "midlayer.self_attn.q_proj.weight") ? "midlayer" : "layers.0");
}

}  // namespace

HeadsFormat eagle3_nvidia_format() {
  return {"eagle3-nvidia",
          "eagle3",
          "NVIDIA's and SGLang's of EAGLE-3: config.json with \"eagle_config\", model.safetensors",
          "config.json with \"eagle_config\"",
          [](const PublishedFolder& folder) {
            return folder.config.is_object() && folder.config.contains("eagle_config");
          },
          import_eagle3_nvidia,
          nullptr};
}

}  // namespace clover::train
