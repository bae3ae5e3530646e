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

/// Where a run lives and how it begins.
struct FitFolders {
  std::filesystem::path output;
  std::string resume;  // "", "auto" or a checkpoint folder
};

/// Everything `fit` works with, read and checked before work begins; settings without an "auto" left.
struct FitJob {
  FitSettings settings;
  FitFolders folders;
  data::TokenStore store;
  std::unique_ptr<data::Tokenizer> tokenizer;  // null without evaluation
  std::unique_ptr<model::Target> target;
  std::shared_ptr<model::Drafter> drafter;          // trainable
  at::Tensor token_map;                             // i64 [V'] or undefined
  std::optional<std::filesystem::path> checkpoint;  // to continue from
  RunState state;
  int64_t total_steps = 0;
  int64_t longest = 0;                      // tokens of the longest training sample as used
  std::vector<int64_t> order{};             // the training samples that the run goes through, ascending
  bool counts_all = false;                  // older runs count samples that teach nothing, too
  std::vector<model::Features> features{};  // by training sample, those of the feature file; empty without it

  /// Training sample `index`, cut to max_length.
  data::TokenStore::Sample sample(int64_t index) const;

  /// The golden prompt of the run's heads: the first sample, cut.
  std::vector<int64_t> golden_ids() const;

  /// Where settings.feature_file lies, and what its features depend on.
  FeatureFile feature_file() const;

  /// What a checkpoint must agree with to continue this run.
  nlohmann::json identity() const;
};

/// Loads and checks all that the settings name.  InputError in one sentence; nothing is written.
FitJob prepare_job(FitSettings settings, const FitFolders& folders);

/// Replaces every "auto" by what this machine and this target make of it, sets the number of threads and
/// opens the device.
at::Device resolve(FitSettings& settings);

}  // namespace clover::train
