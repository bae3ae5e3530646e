#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "data/training/token_store.h"
#include "infer/engine/engine.h"
#include "model/drafters/drafter.h"
#include "model/target/target.h"

namespace clover::train {

/// A prompt for decoding.
struct EvalPrompt {
  std::vector<int64_t> ids;
  std::string category;  // as in the sample, or ""
};

/// How many tokens at the beginning of a sample are its prompt: those before the first supervised one; a
/// quarter of the sample if it is supervised from its start; all of them if none is supervised.  supervised:
/// one entry for each token.
int64_t prompt_length(std::span<const uint8_t> supervised);

/// The first `limit` prompts of held-out samples, without those that leave no room for `max_tokens` more
/// tokens in the target's `context`.
std::vector<EvalPrompt> held_out_prompts(const data::TokenStore& store, int64_t limit, int64_t context,
                                         int64_t max_tokens);

struct AcceptanceSettings {
  int64_t max_tokens = 128;  // of an answer
  int64_t budget = 4;        // guesses checked for a sequence in a step
  int64_t max_batch = 8;     // sequences decoded together
};

/// Results of decoding with a drafter.
struct AcceptanceMetrics {
  double tokens_per_step = 0;  // the mean over passes, bonus tokens included
  int64_t tokens = 0;          // of the answers
  int64_t passes = 0;          // decode passes, summed over sequences
  int64_t mismatches = 0;      // answers that differ from plain decoding; always 0 unless there is a bug
  double seconds = 0;          // of decoding with the drafter
  std::vector<int64_t> accepted_histogram;  // [k]: passes of a sequence that accepted k guesses
  nlohmann::json by_category;               // {category: tokens per step}
};

/// Measures acceptance: decodes prompts greedily with and without a drafter, by the engine that serves
/// requests (infer/engine/).  The answers without a drafter are computed once, at the first measurement.
class Acceptance {
 public:
  Acceptance(const model::Target& target, const data::Tokenizer& tokenizer, std::vector<EvalPrompt> prompts,
             AcceptanceSettings settings);

  /// A thawed drafter is frozen in the target's dtype for the measurement and thawed afterwards.
  AcceptanceMetrics measure(model::Drafter& drafter);

  const std::vector<EvalPrompt>& prompts() const { return prompts_; }

  /// Token ids of the answers without a drafter, in the order of the prompts.
  const std::vector<std::vector<int64_t>>& plain_answers();

 private:
  /// The answers in the order of the prompts; drafter: null for plain decoding.
  std::vector<infer::Completion> decode(model::Drafter* drafter, infer::EngineStats& stats);

  const model::Target& target_;
  const data::Tokenizer& tokenizer_;
  std::vector<EvalPrompt> prompts_;
  AcceptanceSettings settings_;
  std::vector<std::vector<int64_t>> plain_answers_;  // empty until they are computed
};

}  // namespace clover::train
