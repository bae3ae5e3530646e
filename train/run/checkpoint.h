#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "train/optimiser/adamw.h"

namespace clover::train {

/// The progress of a run.  Data order, learning rate and random numbers are functions of the step, so no
/// random state is saved.
struct RunState {
  int64_t step = 0;                  // optimiser steps done
  int64_t tokens = 0;                // answer tokens trained on
  double seconds = 0;                // training time without evaluation
  double device_seconds = 0;         // the same, summed over processes
  double evaluation_seconds = 0;     // of rank 0
  double joules = 0;                 // of training and evaluations by EnergyMeter; 0: not known
  double operations = 0;             // floating-point operations of training, about
  double best_tokens_per_step = -1;  // of the best evaluation, -1 before the first
  int64_t best_step = -1;            // step of the best evaluation
  int64_t evaluated_step = -1;       // step of the last evaluation
  nlohmann::json evaluation;         // results of the last evaluation
  /// {"prompts": how many, "max_tokens": for each} of the best evaluation; null: not recorded, so taken to be
  /// those of the settings.
  nlohmann::json best_eval_size = nullptr;

  /// Adds the time of steps that `processes` made together.
  void add_steps(double step_seconds, int64_t processes) {
    seconds += step_seconds;
    device_seconds += step_seconds * static_cast<double>(processes);
  }
};

/// What a checkpoint records beside the progress, as JSON objects.
struct RunRecord {
  /// "settings", "target", "data", "golden_ids", "samples": must be the same to resume.
  nlohmann::json identity;
  /// For config.json of heads folders: "tokenizer", "chat_template", "training".
  nlohmann::json heads_metadata;
};

/// The checkpoints of a run, RUN/checkpoints/step-NNNNNN: state.json, state.safetensors (fp32 weights and
/// both moments), and token_map.safetensors if there is a draft vocabulary.  Each is written under a
/// temporary name, synced and renamed, so it is complete or absent.
class Checkpoints {
 public:
  explicit Checkpoints(std::filesystem::path run_folder) : folder_(std::move(run_folder) / "checkpoints") {}

  /// Writes a checkpoint and then removes all but the newest `max_checkpoints` (0: removes none).
  /// `token_map`: i64 [V'] or undefined.
  void save(const RunState& state, const RunRecord& record, const AdamW& optimiser,
            const at::Tensor& token_map, int64_t max_checkpoints) const;

  std::optional<std::filesystem::path> newest() const;  // the newest complete checkpoint
  /// The newest complete checkpoint that is older than `checkpoint`.
  std::optional<std::filesystem::path> newest_before(const std::filesystem::path& checkpoint) const;
  std::filesystem::path at_step(int64_t step) const;  // the folder of this step's checkpoint
  std::vector<int64_t> steps() const;                 // of the complete checkpoints, ascending
  /// Removes temporary folders that killed processes left.
  void remove_leftovers() const;
  /// Removes the checkpoints of steps after `step`, damaged ones included, the newest first, and returns
  /// their steps.  A run that is resumed at `step` must not find them later and take them for its own.
  std::vector<int64_t> remove_later(int64_t step) const;

 private:
  std::filesystem::path folder_;
};

/// The content of a checkpoint without weights and moments.
struct SavedRun : RunRecord {
  RunState state;
  at::Tensor token_map;  // i64 [V'], or undefined
};

/// Reads a checkpoint without weights and moments.  InputError when the folder is no checkpoint.
SavedRun read_checkpoint(const std::filesystem::path& checkpoint);

/// InputError unless the checkpoint holds the weights and moments of exactly these parameters, all finite.
void check_optimiser(const std::filesystem::path& checkpoint, const data::NamedTensors& parameters);

/// Loads weights and moments, which were saved after `steps` steps, into the optimiser.
void restore_weights_and_moments(const std::filesystem::path& checkpoint, int64_t steps, AdamW& optimiser);

}  // namespace clover::train
