#pragma once

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
  int64_t longest_text = 0;  // tokens of the longest other text given to feature_cache()
  bool shows_progress = false;
  std::string target_folder{};  // for messages
  std::string feature_file{};   // of the features of prompts and answers, read if it exists, else written
};

/// What the target answers, greedily, to the prompts of an evaluation, and its features of both.  They are
/// found once; heads are then measured without passes of the target (RecordedAnswer).
///
/// Where the sample goes on with an answer, one pass over both tells whether it is the target's; where it is
/// not, the target decodes.  Features stay in memory as long as there is room, and are computed again else.
class TargetAnswers {
 public:
  /// taps: the features that `features_of` returns.  The target and the tokenizer are borrowed.  InputError
  /// if the feature file is one of other data, or cannot be written.
  TargetAnswers(const model::Target& target, const data::Tokenizer& tokenizer,
                std::vector<EvalPrompt> prompts, AnswerSettings settings, const model::FeatureTaps& taps);

  /// Finds the answers, unless they are found.  The others but `prompts` and `settings` need that.
  void find();

  const std::vector<EvalPrompt>& prompts() const { return prompts_; }
  const AnswerSettings& settings() const { return settings_; }
  const std::vector<int64_t>& answer(size_t prompt) const { return answers_[prompt]; }
  /// How many of the samples' answers are the target's, as far as max_tokens lets it go on.
  int64_t confirmed() const { return confirmed_count_; }
  /// The target's answer with the features `taps`, which are among those of the constructor.
  std::shared_ptr<const infer::RecordedAnswer> recorded(size_t prompt, const model::FeatureTaps& taps);

  /// For FeatureCache::features_of: holds the features of a prompt followed by its sample's answer, or by the
  /// target's where the sample has none.
  FeatureCache& feature_cache() { return feature_cache_; }
  int64_t sample_key(size_t prompt) const;

 private:
  void open_feature_file();
  void save_features();
  void confirm(std::span<const size_t> group);
  std::vector<int64_t> sample_answer(size_t prompt) const;
  bool is_complete(std::span<const int64_t> answer) const;
  void decode(std::span<const size_t> unconfirmed);
  int64_t answer_key(size_t prompt) const;
  FeatureFile file() const;

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
  int64_t confirmed_count_ = 0;
  bool found_ = false;
};

}  // namespace clover::train
