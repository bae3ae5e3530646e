#pragma once

#include <nlohmann/json.hpp>

#include "train/run/fit_job.h"

namespace clover::train {

/// Estimates what a run takes: {"steps", "answer_tokens", "trainable_parameters", "memory_bytes": {...},
/// "seconds", "answer_tokens_per_second"}.  For the time it computes one training step, which changes the
/// drafter.  Writes nothing.
nlohmann::json estimate(const FitJob& job);

}  // namespace clover::train
