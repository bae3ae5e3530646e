#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "infer/controls/control_fields.h"

namespace clover::infer {

/// What a model's generation_config.json says about generation, apart from end tokens.  Older folders have it
/// in config.json.
struct GenerationSettings {
  ControlFields controls;  // hold unless options or requests say otherwise
  std::string
      notice;  // one line for the user: which settings are in force and which are not supported; or empty
};

/// Reads it from a model's folder.  Token ids outside the vocabulary (`vocab` tokens) are dropped, as
/// transformers' `generate` would never meet them.  InputError in one sentence for a value of the wrong type
/// or range.
GenerationSettings read_generation_settings(const std::filesystem::path& folder, int64_t vocab);

}  // namespace clover::infer
