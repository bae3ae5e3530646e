#pragma once

#include <nlohmann/json.hpp>

#include "train/evaluate/evaluation.h"

namespace clover::train {

/// The `--json` of eval: "machine", "build", "samples" (as read), "tokens_per_step", "decoder", "heads",
/// "by_category", "by_position".
nlohmann::json eval_report(const EvalFigures& figures, const EvalSettings& settings, int64_t samples);

/// The same for people, on stderr.
void show_eval_report(const nlohmann::json& report);

}  // namespace clover::train
