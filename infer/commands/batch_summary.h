#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "infer/batch/batch_job.h"
#include "infer/engine/engine_options.h"
#include "infer/requests/report.h"

namespace clover::infer {

// What `clover-infer batch` prints to stderr during and after a run, and what it writes to --json.

/// Prints such as "90 answered, 2 failed, 8 done before".  `before`: lines that earlier runs had answered.
void print_counts(const BatchJob::Outcome& outcome, int64_t before);
/// Prints such as "answers.jsonl holds 100 lines, 2 of them errors".
void print_output_size(const std::string& output, int64_t lines, int64_t failed);
/// Prints the figures of a run: tokens, speed, acceptance, shares of the time.
void print_figures(const RunOutcome& run);

/// The run's entry of "configurations" in --json (make_report).
nlohmann::json batch_report_entry(const EngineOptions& engine, const std::string& heads, double temperature,
                                  const RunOutcome& run, const BatchJob::Outcome& outcome);

}  // namespace clover::infer
