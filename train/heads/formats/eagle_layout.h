#pragma once

#include <string>

#include "train/heads/formats/format.h"
#include "train/heads/formats/published_config.h"

namespace clover::train {

// What the layouts of EAGLE heads share.

/// InputError unless the folder has safetensors; the message tells how to convert a pytorch_model.bin.
void require_safetensors(const PublishedFolder& folder);

/// Whether the folder has safetensors with a tensor of that name.
bool has_tensor(const PublishedFolder& folder, const std::string& name);

/// Reads the keys of a Llama-like decoder layer and returns the settings "mlp_width", "norm_eps" and
/// "rope_theta". InputError for what our layer does not have: sizes other than the target's (except the MLP's
/// width), biases, other activations, and scaled positions.
nlohmann::json eagle_layer_settings(PublishedConfig& keys, const model::TargetConfig& target);

/// Checks the keys that SafeAILab's and NVIDIA's layouts of EAGLE-3 share.
void check_eagle3_keys(PublishedConfig& keys, const model::TargetConfig& target);

/// The published name of a tensor of EAGLE-3 heads; `layer`: the published name of their decoder layer.
std::string eagle3_published_name(const std::string& clover_name, const std::string& layer);

/// The import of EAGLE-3 heads with these settings, as all three layouts have it: with the draft vocabulary
/// (d2t, t2d) and maybe a copy of the target's embedding.  `layer`: the published name of their decoder
/// layer.
HeadsImport eagle3_import(const PublishedFolder& folder, const model::TargetConfig& target,
                          nlohmann::json settings, const std::string& layer);

}  // namespace clover::train
