#pragma once

#include <nlohmann/json.hpp>

#include "train/run/fit_job.h"

namespace clover::train {

/// What a run would take, from its settings and one step that is really computed and thrown away:
/// {"steps", "answer_tokens", "trainable_parameters", "memory_bytes": {...}, "seconds",
/// "answer_tokens_per_second"}. The drafter is left changed; nothing is written.
nlohmann::json estimate(const FitJob& job);

}  // namespace clover::train
