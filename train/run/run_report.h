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

/// What is told of a run while it goes on: log.jsonl, TensorBoard events and the line on the terminal.
class RunReport {
 public:
  /// `resume_step` as for Log: -1 begins anew.  `steps`: done before, and in all.
  RunReport(const std::filesystem::path& folder, int64_t resume_step, int64_t steps_done,
            int64_t total_steps);

  /// Step number `step`, from 1, took `seconds`.
  void step(int64_t step, int64_t epoch, const StepFigures& figures, double seconds);

  /// `evaluation`: what state.json and the heads say of it.
  void evaluation(int64_t step, const nlohmann::json& evaluation, const AcceptanceFigures& figures,
                  size_t prompts);

  void flush() { board_.flush(); }
  /// Makes room for another line on the terminal.
  void clear() { progress_.clear(); }

 private:
  Log log_;
  TensorBoardWriter board_;
  infer::Progress progress_;
};

}  // namespace clover::train
