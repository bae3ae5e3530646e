#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "data/tokenizer/tokenizer.h"
#include "data/training/token_store.h"
#include "model/drafters/drafter.h"
#include "model/target/target.h"
#include "train/evaluate/eval_prompts.h"
#include "train/features/feature_file.h"
#include "train/run/checkpoint.h"
#include "train/run/settings.h"

namespace clover::train {

/// The folder of the run, and the checkpoint to resume.
struct FitFolders {
  std::filesystem::path output;  // --output
  std::string resume;            // --resume: "", "auto" or a checkpoint folder
};

/// How the job's target is made.
enum class TargetWeights {
  stored,  // FitSettings::target is a model's folder
  random,  // it is a config.json, and nothing is known of the tokenizer; for estimates
};

/// Everything that `fit` needs, read and checked before training begins.
struct FitJob {
  FitSettings settings;  // with every "auto" resolved
  FitFolders folders;
  data::TokenStore store;
  std::unique_ptr<data::Tokenizer> tokenizer;  // null without evaluation or with random weights
  std::unique_ptr<model::Target> target;
  std::shared_ptr<model::Drafter> drafter;          // trainable
  at::Tensor token_map;                             // i64 [V'] or undefined
  std::optional<std::filesystem::path> checkpoint;  // to resume from
  RunState state;                                   // of the checkpoint
  int64_t total_steps = 0;
  int64_t longest_sample = 0;           // tokens of the longest training sample, after cutting
  std::vector<int64_t> used_samples{};  // indices of the training samples that are used, ascending
  bool includes_unlabelled = false;     // used_samples has samples without a label, too, as in older runs
  // Features by training sample, from an existing feature file; otherwise empty.
  std::vector<model::Features> stored_features{};
  bool features_from_file = false;      // whether the run began with features that another one computed
  nlohmann::json initial_heads_cost{};  // what the heads of --init-heads took, infer::to_json; or null

  /// Training sample `index`, cut to max_length.
  data::TokenStore::Sample sample(int64_t index) const;

  /// The golden prompt of the run's heads: the first 128 token ids of the first sample.  heads_checkpoint.h
  /// says what it is for.
  std::vector<int64_t> golden_ids() const;

  /// The feature file of the settings, with the identity of this run's features.
  FeatureFile feature_file() const;

  /// What must equal a checkpoint's RunRecord::identity to resume from it.
  nlohmann::json identity() const;
  /// What the run has taken so far, as "training" of heads and "run" in it record it.
  nlohmann::json cost() const;
  /// RunRecord::heads_metadata of the state; `processes`: how many train.
  nlohmann::json heads_metadata(int64_t processes) const;
  /// What the run is evaluated with; none if it is not.
  std::vector<EvalPrompt> evaluation_prompts() const;
  /// Bytes of features that are kept of the evaluation's texts, at most.
  int64_t evaluation_cache_bytes() const { return settings.feature_cache / 8; }
  /// Why no held-out sample can be decoded, one clause.
  std::string why_not_evaluated() const;
};

/// Loads and checks everything that the settings name.  InputError when something is missing or does not fit.
/// Writes nothing.
FitJob prepare_job(FitSettings settings, const FitFolders& folders,
                   TargetWeights weights = TargetWeights::stored);

/// Prepares the run folder, which is locked: writes run.toml, and removes temporary files of killed processes
/// and checkpoints after the one that is resumed.
void prepare_run_folder(const FitJob& job);

/// Replaces every "auto" by the value for this machine and a target stored in `stored_dtype`, sets the number
/// of threads and opens the device.
at::Device resolve_auto_settings(FitSettings& settings, at::ScalarType stored_dtype);

}  // namespace clover::train
