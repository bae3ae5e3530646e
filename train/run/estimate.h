#pragma once

#include <nlohmann/json.hpp>

#include "train/run/fit_job.h"

namespace clover::train {

/// Estimates the time and memory of a run: {"steps", "samples", "answer_tokens", "trainable_parameters",
/// "memory_bytes": {...}, "seconds", "answer_tokens_per_second", "step": {...}}.  To measure the time it runs
/// two training steps, the second one twice, which changes the drafter's weights.  "step" has the seconds of
/// the second step in an epoch whose features the target has to compute, and in one whose features are cached
/// (as far as --feature-cache holds them), and the drafter's floating-point operations.  Writes no files.
nlohmann::json estimate(const FitJob& job);

}  // namespace clover::train
