#pragma once

#include <string>

#include "model/target/target.h"

namespace clover::train {

/// Where a target's features come from, for messages.
struct FeatureOrigin {
  std::string target_folder;
  std::string feature_file{};  // "": they were computed
};

/// InputError unless every feature is a finite number: it names the tensor of the target that is none, or
/// what else makes them so.  One pass over them.
void check_finite(const model::Features& features, const model::Target& target, const FeatureOrigin& origin);

/// InputError naming the first tensor of a target's folder that holds what is no finite number, as stored or
/// in `dtype`.  Reads all of them.
void check_finite_weights(const std::string& folder, at::ScalarType dtype);

}  // namespace clover::train
