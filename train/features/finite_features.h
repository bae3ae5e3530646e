#pragma once

#include <string>

#include "model/target/target.h"

namespace clover::train {

/// Where features come from, for messages.
struct FeatureOrigin {
  std::string target_folder;
  std::string feature_file{};  // "": the target computed them
};

/// InputError when a feature is NaN or infinite.  The message names the likely cause: a tensor of the target,
/// the target's dtype, or the feature file.
void check_finite(const model::Features& features, const model::Target& target, const FeatureOrigin& origin);

/// InputError if a tensor in a target's folder has a NaN or infinite value, as stored or after a cast to
/// `dtype`; it names the first such tensor.  Reads the whole folder.
void check_finite_weights(const std::string& folder, at::ScalarType dtype);

}  // namespace clover::train
