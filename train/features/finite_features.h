#pragma once

#include <string>

#include "model/target/target.h"

namespace clover::train {

/// Where features come from, for messages.
struct FeatureOrigin {
  std::string target_folder;
  std::string feature_file{};  // "": computed by the target
};

/// InputError when a feature is NaN or infinite.  The message names the cause: a tensor of the target, its
/// dtype, or the feature file.  Reads the features once.
void check_finite(const model::Features& features, const model::Target& target, const FeatureOrigin& origin);

/// InputError naming the first tensor in a target's folder that has a value which is NaN or infinite, as
/// stored or after a cast to `dtype`.  Reads all tensors.
void check_finite_weights(const std::string& folder, at::ScalarType dtype);

}  // namespace clover::train
