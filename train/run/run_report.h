#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "infer/program/progress.h"
#include "train/evaluate/acceptance.h"
#include "train/logs/log.h"
#include "train/logs/tensorboard_events.h"
#include "train/run/trainer.h"

namespace clover::train {

/// Reports the progress of a run: log.jsonl, TensorBoard events, and a line on the terminal.
class RunReport {
 public:
  /// `folder`: of the run.  `resume_step`: as for Log.  `steps_done`: steps made before a resumption;
  /// `total_steps`: of the whole run.
  RunReport(const std::filesystem::path& folder, int64_t resume_step, int64_t steps_done, int64_t total_steps,
            const LossTerms& terms);

  /// Reports step number `step`, from 1, which took `seconds`.
  void step(int64_t step, int64_t epoch, const StepMetrics& metrics, double seconds);

  /// Reports an evaluation after step `step`, on `prompts` prompts.  `evaluation`: RunState::evaluation.
  void evaluation(int64_t step, const nlohmann::json& evaluation, const AcceptanceMetrics& metrics,
                  size_t prompts);

  /// What steps and evaluations took that a killed run made and this one makes again.
  const LoggedTime& repeated() const { return log_.removed(); }

  void flush() { tensorboard_.flush(); }  // the TensorBoard events
  /// Clears the progress line, so that another line can be printed.
  void clear_progress_line() { progress_.clear(); }

 private:
  LossTerms terms_;
  Log log_;
  TensorBoardWriter tensorboard_;
  infer::Progress progress_;
};

}  // namespace clover::train
