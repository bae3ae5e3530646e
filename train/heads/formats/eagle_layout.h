#pragma once

#include <set>
#include <string>

#include "train/heads/formats/format.h"
#include "train/heads/formats/published_config.h"

namespace clover::train {

/// What the layouts of EAGLE heads share.

/// InputError for a folder whose weights are a pickle, pytorch_model.bin, alone.
void require_safetensors(const PublishedFolder& folder);

/// Whether the folder's weights, if it has them as safetensors, hold a tensor of that name.
bool has_tensor(const PublishedFolder& folder, const std::string& name);

/// Checks the keys of a Llama-like layer against the target, whose sizes ours has: sizes, activation, biases,
/// epsilon.  Returns the value for setting "mlp_width".
int64_t check_eagle_layer(PublishedConfig& keys, const model::TargetConfig& target);

/// The base of the layer's rotary positions: "rope_theta", or 10000.  InputError for scaled positions.
double eagle_rope_theta(PublishedConfig& keys);

/// The name of a tensor of our decoder layer: "q_proj.weight" becomes LAYER + ".self_attn.q_proj.weight".
std::string eagle_layer_name(const std::string& own, const std::string& layer);

/// The name of a tensor of EAGLE-3 heads whose layer is called `layer`.
std::string eagle3_name(const std::string& own, const std::string& layer);

/// Reads what all three layouts of EAGLE-3 have: the draft vocabulary (d2t, t2d), and copies of the target's
/// embedding; `layer`: how the layer is called.
HeadsImport eagle3_import(const PublishedFolder& folder, const model::TargetConfig& target,
                          nlohmann::json settings, const std::string& layer);

}  // namespace clover::train
