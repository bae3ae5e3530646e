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

/// How often each head's label has each rank, teacher-forced and with the heads' own guesses as input.
struct Accuracy {
  std::vector<HeadMetrics> truth, own;  // [K]

  explicit Accuracy(int64_t heads) : truth(heads), own(heads) {}
  void add(const ScoredLabel& label, bool own_guesses);
};

/// Buckets for the distance of a label from the answer's first token: [0, 16), [16, 32), [32, 64), ...
int64_t bucket_of(int64_t distance);
int64_t bucket_begin(int64_t bucket);

struct EvalSettings {
  AcceptanceSettings decoder;
  int64_t micro_batch = 8;      // samples scored at once
  std::string loss{};           // terms of which the values are reported, as for `fit`; "": none
  std::string target_folder{};  // only for messages
};

/// The results of `eval`.
struct EvalMetrics {
  explicit EvalMetrics(int64_t heads) : all(heads) {}

  AcceptanceMetrics decoder;
  Accuracy all;
  std::vector<HeadMetrics> losses;  // [K], where EvalSettings::loss is given
  std::map<std::string, Accuracy> by_category;
  std::map<int64_t, Accuracy> by_position;  // by bucket
};

/// Decodes the samples' prompts with and without the drafter, then scores its guesses on their answers; a
/// prompt without an answer gets the target's.  The drafter must be thawed.  InputError when no prompt leaves
/// room for an answer in the context.
EvalMetrics evaluate(const EvalSettings& settings, const model::Target& target,
                     const data::Tokenizer& tokenizer, model::Drafter& drafter,
                     std::vector<EvalSample> samples);

}  // namespace clover::train
