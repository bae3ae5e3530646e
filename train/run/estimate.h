#pragma once

#include <nlohmann/json.hpp>

#include "train/run/fit_job.h"

namespace clover::train {

/// Estimates the time and memory of a run: {"steps", "samples", "answer_tokens", "trainable_parameters",
/// "memory_bytes": {...}, "seconds", "answer_tokens_per_second"}.  To measure the time it runs the first
/// training step twice, which changes the drafter's weights.  Writes no files.
nlohmann::json estimate(const FitJob& job);

}  // namespace clover::train
