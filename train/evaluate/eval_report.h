#pragma once

#include <nlohmann/json.hpp>

#include "train/evaluate/evaluation.h"

namespace clover::train {

/// The report of `eval --json`: "machine", "build", "samples", "tokens_per_step", "decoder", "heads",
/// "by_category", "by_position".  `samples`: how many were read.
nlohmann::json eval_report(const EvalMetrics& metrics, const EvalSettings& settings, int64_t samples);

/// Prints the report on stderr as text.
void show_eval_report(const nlohmann::json& report);

}  // namespace clover::train
