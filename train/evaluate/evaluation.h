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

/// How often the labels of each head have each rank (HeadMetrics::labels and hits): if the heads read the
/// true tokens, and if they read their own guesses.
struct Accuracy {
  std::vector<HeadMetrics> teacher_forced, own_guesses;  // [K]

  explicit Accuracy(int64_t heads) : teacher_forced(heads), own_guesses(heads) {}
  void add(const ScoredLabel& label, bool with_own_guesses);
};

/// Buckets for a label's distance in tokens from the answer's first token: [0, 16), [16, 32), [32, 64), ...
int64_t bucket_of(int64_t distance);
int64_t bucket_begin(int64_t bucket);  // the first distance in the bucket

struct EvalSettings {
  AnswerSettings answers;
  int64_t budget = 4;       // guesses checked for a sequence in a step
  int64_t micro_batch = 8;  // samples scored at once
  std::string loss{};       // terms to report, as for setting --loss of `fit`; "": none
};

/// The results of `eval`.
struct EvalMetrics {
  explicit EvalMetrics(int64_t heads) : overall(heads) {}

  AcceptanceMetrics decoder;
  int64_t decoded = 0, confirmed = 0;  // prompts, and those whose sample has the target's answer
  Accuracy overall;
  std::vector<HeadMetrics> losses;  // [K]; empty without EvalSettings::loss
  std::map<std::string, Accuracy> by_category;
  std::map<int64_t, Accuracy> by_position;  // by bucket
};

/// Decodes the samples' prompts with the drafter, and then scores the drafter's guesses on the
/// samples' answers.  A prompt without an answer gets the target's.  The drafter must be thawed.  InputError
/// when no prompt leaves room for an answer in the context.
EvalMetrics evaluate(const EvalSettings& settings, const model::Target& target,
                     const data::Tokenizer& tokenizer, model::Drafter& drafter,
                     std::vector<EvalSample> samples);

}  // namespace clover::train
