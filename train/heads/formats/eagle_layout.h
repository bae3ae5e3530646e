#pragma once

#include <string>

#include "train/heads/formats/format.h"
#include "train/heads/formats/published_config.h"

namespace clover::train {

/// What the layouts of EAGLE heads share.

/// InputError for a folder whose weights are a pickle, pytorch_model.bin, alone.
void require_safetensors(const PublishedFolder& folder);

/// Whether the folder's weights, if it has them as safetensors, hold a tensor of that name.
bool has_tensor(const PublishedFolder& folder, const std::string& name);

/// Checks the keys of a Llama-like layer, whose sizes are the target's but for its MLP.  Returns the settings
/// "mlp_width", "norm_eps" and "rope_theta".  InputError for sizes, biases, activations and scaled positions
/// that ours have not.
nlohmann::json eagle_layer_settings(PublishedConfig& keys, const model::TargetConfig& target);

/// Checks the keys that SafeAILab's and NVIDIA's layouts of EAGLE-3 share.
void check_eagle3_keys(PublishedConfig& keys, const model::TargetConfig& target);

/// The name of a tensor of EAGLE-3 heads whose layer is called `layer`.
std::string eagle3_name(const std::string& own, const std::string& layer);

/// Reads what all three layouts of EAGLE-3 have: the draft vocabulary (d2t, t2d), and copies of the target's
/// embedding; `layer`: how the layer is called.
HeadsImport eagle3_import(const PublishedFolder& folder, const model::TargetConfig& target,
                          nlohmann::json settings, const std::string& layer);

}  // namespace clover::train
