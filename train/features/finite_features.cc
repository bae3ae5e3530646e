#include "train/features/finite_features.h"

#include <filesystem>

#include "data/files/error.h"
#include "data/files/finite.h"
#include "data/files/safetensors.h"

namespace clover::train {

void check_finite_weights(const std::string& folder, at::ScalarType dtype) {
  if (std::filesystem::is_regular_file(folder)) return;  // a config.json: the weights are random, and finite
  const auto reader = data::SafetensorsReader::open(folder);
  for (const std::string& name : reader.names()) {
    const at::Tensor tensor = reader.read(name);
    if (!data::all_finite(tensor)) {
      throw data::InputError(folder + ": tensor " + name +
                             " holds what is no finite number: the target's weights are damaged, get them "
                             "anew.");
    }
    if (tensor.is_floating_point()) data::cast_finite(folder, name, tensor, dtype);
  }
}

void check_finite(const model::Features& features, const model::Target& target, const FeatureOrigin& origin) {
  bool finite = true;
  for (const auto member : model::feature_members)
    if ((features.*member).defined()) finite = finite && data::all_finite(features.*member);
  if (finite) return;
  check_finite_weights(origin.target_folder, target.dtype());
  if (!origin.feature_file.empty()) {
    throw data::InputError(origin.feature_file +
                           " holds features that are no finite numbers, though the target's weights are: "
                           "remove it, and they are computed again.");
  }
  const std::string dtype = model::dtype_name(target.dtype());
  throw data::InputError(
      origin.target_folder + " computes what is no finite number in " + dtype + ", though its weights are: " +
      (target.dtype() == at::kFloat  ? "its weights are damaged, get them anew."
       : target.dtype() == at::kHalf ? "give --dtype bfloat16 or float32, whose range is wider."
                                     : "give --dtype float32."));
}

}  // namespace clover::train
