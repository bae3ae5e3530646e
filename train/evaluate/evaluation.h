#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "model/drafters/drafter.h"
#include "model/target/target.h"
#include "train/evaluate/acceptance.h"
#include "train/evaluate/eval_input.h"
#include "train/objective/head_accuracy.h"

namespace clover::train {

/// Hits of each head by rank, teacher-forced and fed with its own guesses.
struct Accuracy {
  std::vector<HeadFigures> truth, own;  // [K]

  explicit Accuracy(int64_t heads) : truth(heads), own(heads) {}
  void add(const ScoredLabel& label, Feed feed);
};

/// Buckets of a label's distance from the first token of the answer: [0, 16), [16, 32), [32, 64), ...
int64_t bucket_of(int64_t distance);
int64_t bucket_begin(int64_t bucket);

struct EvalSettings {
  AcceptanceSettings decoder;
  int64_t micro_batch = 8;      // samples scored at once
  std::string target_folder{};  // for messages
};

/// What `eval` finds out about heads.
struct EvalFigures {
  explicit EvalFigures(int64_t heads) : all(heads) {}

  AcceptanceFigures decoder;
  Accuracy all;
  std::map<std::string, Accuracy> by_category;
  std::map<int64_t, Accuracy> by_position;  // by bucket
};

/// Decodes the samples' prompts with and without a thawed drafter, then scores it on their answers; bare
/// prompts get the target's answer.  InputError when no prompt leaves room for an answer in the context.
EvalFigures evaluate(const EvalSettings& settings, const model::Target& target,
                     const data::Tokenizer& tokenizer, model::Drafter& drafter,
                     std::vector<EvalSample> samples);

}  // namespace clover::train
