#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "train/optimiser/adamw.h"

namespace clover::train {

/// How far a run is.  The data order and the schedule are functions of the step, so nothing random is saved.
struct RunState {
  int64_t step = 0;    // optimiser steps done
  int64_t tokens = 0;  // answer tokens seen
  double seconds = 0;  // of all processes, spent on training, evaluation left out
  double best = -1;    // tokens per step of the best evaluation, -1 before the first
  int64_t best_step = -1;
  int64_t evaluated_step = -1;       // of the last evaluation
  nlohmann::json evaluation;         // its figures
  nlohmann::json best_on = nullptr;  // "prompts" and "max_tokens" that `best` was measured on; null: as now
};

/// What makes a run this run, and what its heads say of themselves.
struct RunRecord {
  nlohmann::json identity;  // "settings", "target", "data", "golden_ids"
  nlohmann::json about;     // of the heads: "tokenizer", "chat_template", "training"
};

/// RUN/checkpoints/step-NNNNNN: state.json, state.safetensors (fp32 weights and both moments),
/// token_map.safetensors when the vocabulary is trimmed.  A checkpoint is whole or absent: it is written
/// under another name, synced and renamed.
class Checkpoints {
 public:
  explicit Checkpoints(std::filesystem::path run_folder) : folder_(std::move(run_folder) / "checkpoints") {}

  /// `token_map`: i64 [V'] or undefined.  Then removes all but the newest `keep` (0: none is removed).
  void save(const RunState& state, const RunRecord& record, const AdamW& optimiser,
            const at::Tensor& token_map, int64_t keep) const;

  std::optional<std::filesystem::path> newest() const;  // the newest whole one
  /// The newest whole one older than `checkpoint`.
  std::optional<std::filesystem::path> before(const std::filesystem::path& checkpoint) const;
  std::filesystem::path at_step(int64_t step) const;
  std::vector<int64_t> steps() const;  // of the whole ones, ascending

  /// Removes what a killed process left half-written.
  void remove_leftovers() const;
  /// Removes those of steps behind `step`, the newest first, and returns their steps: a run that goes on from
  /// an older checkpoint would take them for its own, damaged ones included.
  std::vector<int64_t> remove_later(int64_t step) const;

 private:
  std::filesystem::path folder_;
};

struct SavedRun : RunRecord {
  RunState state;
  at::Tensor token_map;  // [V'] as stored, or undefined
};

/// Everything but weights and moments; InputError when the folder is no checkpoint.
SavedRun read_checkpoint(const std::filesystem::path& checkpoint);

/// InputError unless weights and moments are whole, those of `parameters`, and finite numbers.
void check_optimiser(const std::filesystem::path& checkpoint, const data::NamedTensors& parameters);

/// Weights and moments.
void restore_optimiser(const std::filesystem::path& checkpoint, int64_t steps, AdamW& optimiser);

}  // namespace clover::train
