#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "model/drafters/drafter.h"
#include "model/target/target.h"

namespace clover::train {

/// Heads as the projects that published them lay them out:
///   clover2  the folder of XiaoBin1992/clover (config.json with "clover", model.safetensors)
///   medusa   TGI's (config.json, medusa_lm_head.safetensors), one layer a head, the target's LM head shared
struct PublishedHeads {
  std::filesystem::path folder;
  std::string kind;
  nlohmann::json settings;  // of make_drafter

  /// InputError for a folder of neither layout and for heads that Clover's kind of this name cannot be.
  static PublishedHeads open(const std::filesystem::path& folder, const model::TargetConfig& target);

  /// Gives `drafter`, made with `settings`, these weights.  InputError for missing, extra and mis-shaped
  /// tensors, and for copies of another target's LM head.
  void read_into(model::Drafter& drafter, const model::Target& target) const;
};

/// Where the weights are in Medusa's layout.
constexpr const char* medusa_file = "medusa_lm_head.safetensors";

/// What `name`, a tensor of heads of `kind`, is called there; InputError where the layout has no such tensor.
std::string published_name(const std::string& kind, const std::string& name);

}  // namespace clover::train
