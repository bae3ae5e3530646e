#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "train/adamw.h"

namespace clover::train {

/// How far a run is.  The data order and the schedule are functions of the step, so nothing random is saved.
struct RunState {
  int64_t step = 0;    // optimiser steps done
  int64_t tokens = 0;  // answer tokens seen
  double seconds = 0;  // spent on training, evaluation left out
  double best = -1;    // tokens per step of the best evaluation, -1 before the first
  int64_t best_step = -1;
  int64_t evaluated_step = -1;  // of the last evaluation
};

/// RUN/checkpoints/step-NNNNNN: state.json, state.safetensors (fp32 weights and both moments),
/// token_map.safetensors when the vocabulary is trimmed.  A checkpoint is whole or absent: it is written
/// under another name, synced and renamed.
class Checkpoints {
 public:
  explicit Checkpoints(std::filesystem::path run_folder) : folder_(std::move(run_folder) / "checkpoints") {}

  /// `identity`: what makes the run this run (settings, kind, drafter, target, data), returned by
  /// `read_identity`.  Then removes all but the newest `keep` (0: none is removed).
  void save(const RunState& state, const nlohmann::json& identity, const AdamW& optimiser,
            const at::Tensor& token_map, int64_t keep) const;

  std::optional<std::filesystem::path> newest() const;  // the newest whole one
  std::filesystem::path at_step(int64_t step) const;

  /// Removes what a killed process left half-written.
  void remove_leftovers() const;

 private:
  std::filesystem::path folder_;
};

struct SavedRun {
  RunState state;
  nlohmann::json identity;
  at::Tensor token_map;  // i64 [V'] or undefined
};

/// Everything but weights and moments; InputError when the folder is no checkpoint.
SavedRun read_checkpoint(const std::filesystem::path& checkpoint);

/// Weights and moments.
void restore_optimiser(const std::filesystem::path& checkpoint, int64_t steps, AdamW& optimiser);

}  // namespace clover::train
