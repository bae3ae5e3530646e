#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "infer/program/progress.h"
#include "train/evaluate/acceptance.h"
#include "train/run/log.h"
#include "train/run/tensorboard_events.h"
#include "train/run/trainer.h"

namespace clover::train {

/// Reports the progress of a run: log.jsonl, TensorBoard events, and a line on the terminal.
class RunReport {
 public:
  /// `resume_step` as for Log.  `steps_done`: steps before this process; `total_steps`: of the whole run.
  RunReport(const std::filesystem::path& folder, int64_t resume_step, int64_t steps_done, int64_t total_steps,
            const LossTerms& terms);

  /// Reports step number `step`, from 1, which took `seconds`.
  void step(int64_t step, int64_t epoch, const StepMetrics& metrics, double seconds);

  /// Reports an evaluation after `step`.  `evaluation`: its record in state.json and the heads folder.
  void evaluation(int64_t step, const nlohmann::json& evaluation, const AcceptanceMetrics& metrics,
                  size_t prompts);

  void flush() { board_.flush(); }
  /// Clears the progress line, so that another line can be printed.
  void clear() { progress_.clear(); }

 private:
  LossTerms terms_;
  Log log_;
  TensorBoardWriter board_;
  infer::Progress progress_;
};

}  // namespace clover::train
