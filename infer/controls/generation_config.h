#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "infer/controls/control_fields.h"

namespace clover::infer {

/// The logit controls of a model's generation_config.json (in older folders, of its config.json).  End tokens
/// are read elsewhere (infer/engine/end_tokens.h).
struct GenerationSettings {
  ControlFields controls;  // defaults for requests
  // One line for the user: which settings of the file are in force, which are not supported, and which are
  // left to options.  Empty when there is nothing to say.
  std::string notice;
};

/// Reads the settings from a model's folder.  Token ids outside the vocabulary of `vocab` tokens are dropped:
/// they have no effect in transformers' `generate` either.  InputError for a value of the wrong type or
/// range.
GenerationSettings read_generation_settings(const std::filesystem::path& folder, int64_t vocab);

}  // namespace clover::infer
