#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "infer/batch/batch_job.h"
#include "infer/engine/engine_options.h"
#include "infer/requests/report.h"

namespace clover::infer {

/// What `clover-infer batch` prints to stderr while and after it runs, and its entry in --json.

/// "412 tokens/s, 2.71 tokens/step", shown beside the progress bar.
std::string speed_note(const EngineStats& stats);

/// "90 answered, 2 failed, 8 done before".  `before`: lines that earlier runs had done.
void print_counts(const BatchJob::Outcome& outcome, int64_t before);
/// "answers.jsonl holds 100 lines, 2 of them errors".
void print_output_size(const std::string& output, int64_t lines, int64_t failed);
/// The figures of a run: tokens, speed, acceptance, shares of the time.
void print_figures(const RunOutcome& run);

/// The entry of "configurations" in --json.
nlohmann::json batch_report_entry(const EngineOptions& engine, const std::string& heads, double temperature,
                                  const RunOutcome& run, const BatchJob::Outcome& outcome);

}  // namespace clover::infer
