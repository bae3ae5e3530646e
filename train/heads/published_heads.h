#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "model/drafters/drafter.h"
#include "model/target/target.h"

namespace clover::train {

/// Heads in the file layouts of other projects:
///   clover2  the folder of XiaoBin1992/clover (config.json with "clover", model.safetensors)
///   medusa   TGI's (config.json, medusa_lm_head.safetensors), one layer a head, the target's LM head shared
struct PublishedHeads {
  std::filesystem::path folder;
  std::string kind;
  nlohmann::json settings;  // for make_drafter

  /// InputError for a folder of neither layout, and for heads whose settings our drafter of that kind does
  /// not support.
  static PublishedHeads open(const std::filesystem::path& folder, const model::TargetConfig& target);

  /// Loads the weights into `drafter`, which was made with `settings`.  InputError for missing, extra and
  /// mis-shaped tensors, and for a stored copy of the LM head that is not this target's.
  void read_into(model::Drafter& drafter, const model::Target& target) const;
};

/// The file with the weights in Medusa's layout.
constexpr const char* medusa_file = "medusa_lm_head.safetensors";

/// The name in the published layout of tensor `name` of heads of `kind`.  InputError when the layout has no
/// such tensor.
std::string published_name(const std::string& kind, const std::string& name);

}  // namespace clover::train
