#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "infer/controls/control_fields.h"

namespace clover::infer {

/// What a model folder's own generation_config.json (or, where there is none, config.json, as older folders
/// have it) asks of answers besides end tokens.
struct GenerationSettings {
  ControlFields controls;  // in force unless flags or requests say otherwise
  std::string notice;      // one line: what is in force, and what is asked and not done; empty: nothing
};

/// Ids outside the vocabulary are left out, as transformers' generate never meets them.  InputError in one
/// sentence for a value that cannot be.
GenerationSettings read_generation_settings(const std::filesystem::path& folder, int64_t vocab);

}  // namespace clover::infer
