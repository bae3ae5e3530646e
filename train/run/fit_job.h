#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "data/tokenizer/tokenizer.h"
#include "data/training/token_store.h"
#include "model/drafters/drafter.h"
#include "model/target/target.h"
#include "train/features/feature_file.h"
#include "train/run/checkpoint.h"
#include "train/run/settings.h"

namespace clover::train {

/// The run folder, and what to resume.
struct FitFolders {
  std::filesystem::path output;
  std::string resume;  // "", "auto" or a checkpoint folder
};

/// Everything that `fit` needs, read and checked before training begins.
struct FitJob {
  FitSettings settings;  // every "auto" is resolved
  FitFolders folders;
  data::TokenStore store;
  std::unique_ptr<data::Tokenizer> tokenizer;  // null without evaluation
  std::unique_ptr<model::Target> target;
  std::shared_ptr<model::Drafter> drafter;          // trainable
  at::Tensor token_map;                             // i64 [V'] or undefined
  std::optional<std::filesystem::path> checkpoint;  // to resume from
  RunState state;
  int64_t total_steps = 0;
  int64_t longest = 0;                  // tokens of the longest training sample, after cutting
  std::vector<int64_t> used_samples{};  // indices of the training samples that are used, ascending
  bool includes_unlabelled = false;     // used_samples has samples without a label, too, as in older runs
  // Features by training sample, from the feature file; empty without one.
  std::vector<model::Features> stored_features{};

  /// Training sample `index`, cut to max_length.
  data::TokenStore::Sample sample(int64_t index) const;

  /// The golden prompt of the run's heads: the first 128 ids of the first sample.
  std::vector<int64_t> golden_ids() const;

  /// The feature file of the settings, and everything that its features depend on.
  FeatureFile feature_file() const;

  /// What must equal a checkpoint's RunRecord::identity to resume from it.
  nlohmann::json identity() const;
};

/// Loads and checks everything that the settings name.  InputError in one sentence.  Writes nothing.
FitJob prepare_job(FitSettings settings, const FitFolders& folders);

/// Replaces every "auto" by the value for this machine and target, sets the number of threads and opens the
/// device.
at::Device resolve_auto_settings(FitSettings& settings);

}  // namespace clover::train
