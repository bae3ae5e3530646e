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

/// A prompt to continue.
struct EvalPrompt {
  std::vector<int64_t> ids;
  std::string category;
};

/// How many ids of a sample are the prompt its answer is decoded from: those before the first supervised
/// one; of a sample supervised from its start, its first quarter; of one that is not supervised, all.
int64_t prompt_length(std::span<const uint8_t> supervised);

/// Prompts of held-out samples, at most `limit`, those too long for the context left out.
std::vector<EvalPrompt> held_out_prompts(const data::TokenStore& store, int64_t limit, int64_t context,
                                         int64_t max_tokens);

struct AcceptanceSettings {
  int64_t max_tokens = 128;
  int64_t budget = 4;
  int64_t max_batch = 8;
};

/// What the real decoder makes of a drafter.
struct AcceptanceFigures {
  double tokens_per_step = 0;
  int64_t tokens = 0;
  int64_t passes = 0;
  int64_t differs = 0;  // answers that are not what plain decoding yields: must be 0
  double seconds = 0;
  std::vector<int64_t> accepted_histogram;
  nlohmann::json by_category;
};

/// Decodes prompts greedily with and without a drafter.  The plain answers are computed once, at the first
/// measurement.
class Acceptance {
 public:
  Acceptance(const model::Target& target, const data::Tokenizer& tokenizer, std::vector<EvalPrompt> prompts,
             AcceptanceSettings settings);

  /// `drafter` must be trainable or frozen; it is frozen in the target's dtype for the measurement and thawed
  /// again if it was not frozen before.
  AcceptanceFigures measure(model::Drafter& drafter);

  const std::vector<EvalPrompt>& prompts() const { return prompts_; }

  /// Token ids of the plain answers, in the order of the prompts.
  const std::vector<std::vector<int64_t>>& plain_answers();

 private:
  std::vector<infer::Completion> decode(model::Drafter* drafter, infer::EngineStats& stats);

  const model::Target& target_;
  const data::Tokenizer& tokenizer_;
  std::vector<EvalPrompt> prompts_;
  AcceptanceSettings settings_;
  std::vector<std::vector<int64_t>> plain_;
};

}  // namespace clover::train
