#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "train/optimiser/adamw.h"

namespace clover::train {

/// The progress of a run.  Data order and schedule are functions of the step, so no random state is saved.
struct RunState {
  int64_t step = 0;    // optimiser steps done
  int64_t tokens = 0;  // answer tokens trained on
  double seconds = 0;  // training time without evaluation, summed over processes
  double best = -1;    // tokens per step of the best evaluation, -1 before the first
  int64_t best_step = -1;
  int64_t evaluated_step = -1;  // step of the last evaluation
  nlohmann::json evaluation;    // its results
  nlohmann::json best_on =
      nullptr;  // "prompts" and "max_tokens" of that evaluation; null: as in the settings
};

/// What a checkpoint records beside the progress.
struct RunRecord {
  nlohmann::json identity;  // "settings", "target", "data", "golden_ids", "samples": must agree to resume
  nlohmann::json about;     // for the heads folder: "tokenizer", "chat_template", "training"
};

/// The checkpoints of a run, RUN/checkpoints/step-NNNNNN: state.json, state.safetensors (fp32 weights and
/// both moments), and token_map.safetensors if there is a draft vocabulary.  Each is written under a
/// temporary name, synced and renamed, so it is complete or absent.
class Checkpoints {
 public:
  explicit Checkpoints(std::filesystem::path run_folder) : folder_(std::move(run_folder) / "checkpoints") {}

  /// Writes a checkpoint, then removes all but the newest `keep` (0: keeps all).  `token_map`: i64 [V'] or
  /// undefined.
  void save(const RunState& state, const RunRecord& record, const AdamW& optimiser,
            const at::Tensor& token_map, int64_t keep) const;

  std::optional<std::filesystem::path> newest() const;  // the newest complete one
  /// The newest complete one that is older than `checkpoint`.
  std::optional<std::filesystem::path> before(const std::filesystem::path& checkpoint) const;
  std::filesystem::path at_step(int64_t step) const;
  std::vector<int64_t> steps() const;  // of the complete ones, ascending
  /// Removes temporary folders that killed processes left.
  void remove_leftovers() const;
  /// Removes the checkpoints of steps after `step`, damaged ones included, the newest first, and returns
  /// their steps. Otherwise a run resumed from an older checkpoint would take them for its own.
  std::vector<int64_t> remove_later(int64_t step) const;

 private:
  std::filesystem::path folder_;
};

/// A checkpoint that was read, without weights and moments.
struct SavedRun : RunRecord {
  RunState state;
  at::Tensor token_map;  // i64 [V'], or undefined
};

/// Reads a checkpoint without weights and moments.  InputError when the folder is no checkpoint.
SavedRun read_checkpoint(const std::filesystem::path& checkpoint);

/// InputError unless the checkpoint holds weights and moments of exactly these parameters, all finite.
void check_optimiser(const std::filesystem::path& checkpoint, const data::NamedTensors& parameters);

/// Loads weights and moments, which were saved after `steps` steps, into the optimiser.
void restore_optimiser(const std::filesystem::path& checkpoint, int64_t steps, AdamW& optimiser);

}  // namespace clover::train
