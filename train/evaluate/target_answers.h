#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "infer/engine/request.h"
#include "model/target/target.h"
#include "train/evaluate/eval_prompts.h"
#include "train/features/feature_cache.h"
#include "train/features/feature_file.h"

namespace clover::train {

struct AnswerSettings {
  int64_t max_tokens = 128;  // of an answer
  int64_t max_batch = 8;     // sequences decoded together
  bool shows_progress = false;
  int64_t cache_bytes = 0;          // memory for features; those that find no room are computed each time
  int64_t longest_scored_text = 0;  // tokens of the longest other text that feature_cache() is asked for
  std::string target_folder{};      // for the message if features are not finite
  std::string feature_file{};       // features are read from it if it exists, else written to it; "": none
};

/// What the target answers, greedily, to the prompts of an evaluation, and its features of both.  They are
/// found once; heads are then measured without passes of the target (RecordedAnswer).
///
/// Where the sample goes on with an answer, one pass over both tells whether it is the target's; where it is
/// not, the target decodes.
class TargetAnswers {
 public:
  /// taps: the features that `recorded` returns.  The target and the tokenizer are borrowed.  InputError if
  /// the feature file belongs to other data, or cannot be written.
  TargetAnswers(const model::Target& target, const data::Tokenizer& tokenizer,
                std::vector<EvalPrompt> prompts, AnswerSettings settings, const model::FeatureTaps& taps);

  /// The features that are kept where `recorded` is to return `taps`: also what the target's tokens are
  /// computed from.
  static model::FeatureTaps taps_kept(model::FeatureTaps taps);

  const std::vector<EvalPrompt>& prompts() const { return prompts_; }
  const AnswerSettings& settings() const { return settings_; }
  const model::Target& target() const { return target_; }
  const data::Tokenizer& tokenizer() const { return tokenizer_; }

  /// Finds the answers, once.  The functions below need them.
  void find();
  const std::vector<int64_t>& answer(size_t prompt) const { return answers_[prompt]; }
  /// How many of the samples' answers are the target's, up to max_tokens.
  int64_t confirmed() const { return std::ranges::count(confirmed_, 1); }
  /// The target's answer with the features `taps`, which are among those of the constructor.
  std::shared_ptr<const infer::RecordedAnswer> recorded(size_t prompt, const model::FeatureTaps& taps);

  /// Holds, by sample_key, the features of each prompt with its sample's answer, or with the target's where
  /// the sample has none; and of each prompt with the target's answer where that is another.
  FeatureCache& feature_cache() { return feature_cache_; }
  int64_t sample_key(size_t prompt) const;

 private:
  FeatureFile file() const;
  void open_feature_file();
  void save_features();
  void confirm(std::span<const size_t> group);
  std::vector<int64_t> sample_answer(size_t prompt) const;
  bool is_complete(std::span<const int64_t> answer) const;
  int64_t answer_key(size_t prompt) const;
  bool read_from_file(size_t prompt);
  void decode(const std::vector<size_t>& unknown);
  model::Features features_of(size_t prompt, std::span<const int64_t> answer, int64_t key);
  std::vector<int64_t> tokens_after(const at::Tensor& post_norm) const;

  const model::Target& target_;
  const data::Tokenizer& tokenizer_;
  std::vector<EvalPrompt> prompts_;
  AnswerSettings settings_;
  model::FeatureTaps taps_;
  std::vector<int64_t> end_ids_;
  bool file_is_there_ = false;
  FeatureCache feature_cache_;
  std::vector<std::vector<int64_t>> answers_;  // [prompts] once they are found
  std::vector<char> confirmed_;                // [prompts] 1: the sample's answer is the target's
  bool found_ = false;
};

}  // namespace clover::train
