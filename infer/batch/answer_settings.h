#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "infer/engine/engine_options.h"
#include "infer/requests/decode_flags.h"
#include "infer/requests/loaded_model.h"

namespace clover::infer {

/// The settings that answers depend on, by name.  They must be the same when a batch job continues, so that
/// its answers are those of one uninterrupted run.  Heads and growth policy are among them only under
/// `--verify typical`, which lets them change tokens.  `heads`: the folder of the drafter's heads; empty
/// without heads.
nlohmann::json answer_settings(const DecodeFlags& flags, const std::string& heads,
                               const EngineOptions& engine, const LoadedModel& model);

}  // namespace clover::infer
