#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "infer/engine/engine_options.h"
#include "infer/requests/decode_flags.h"
#include "infer/requests/loaded_model.h"

namespace clover::infer {

/// The settings that answers depend on, by name.  They must be the same when a batch job continues, so that
/// its answers are those of one uninterrupted run.  Batch size, threads, heads and growth policy are not
/// among them, because they change no token under `--verify match`.  `heads`: the folder of the drafter's
/// heads; may be empty.
nlohmann::json answer_settings(const DecodeFlags& flags, const std::string& heads,
                               const EngineOptions& engine, const LoadedModel& model);

}  // namespace clover::infer
