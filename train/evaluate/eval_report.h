#pragma once

#include <nlohmann/json.hpp>

#include "train/evaluate/evaluation.h"

namespace clover::train {

/// The `--json` of eval: "machine", "build", "samples" (as read), "tokens_per_step", "decoder", "heads",
/// "by_category", "by_position".
nlohmann::json eval_report(const EvalMetrics& metrics, const EvalSettings& settings, int64_t samples);

/// Prints the report on stderr for people.
void show_eval_report(const nlohmann::json& report);

}  // namespace clover::train
