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
  std::string category;
};

/// How many ids at the beginning of a sample are its prompt: those before the first supervised one; a quarter
/// of the sample if it is supervised from its start; all of them if nothing is supervised.
int64_t prompt_length(std::span<const uint8_t> supervised);

/// The prompts of at most `limit` held-out samples, without those that leave no room for max_tokens in the
/// context.
std::vector<EvalPrompt> held_out_prompts(const data::TokenStore& store, int64_t limit, int64_t context,
                                         int64_t max_tokens);

struct AcceptanceSettings {
  int64_t max_tokens = 128;
  int64_t budget = 4;
  int64_t max_batch = 8;
};

/// Results of decoding with a drafter.
struct AcceptanceMetrics {
  double tokens_per_step = 0;
  int64_t tokens = 0;
  int64_t passes = 0;
  int64_t differs = 0;  // answers that differ from plain decoding; always 0 unless there is a bug
  double seconds = 0;
  std::vector<int64_t> accepted_histogram;
  nlohmann::json by_category;
};

/// Measures acceptance: decodes prompts greedily with and without a drafter, by the real engine.  The answers
/// without a drafter are computed once, at the first measurement.
class Acceptance {
 public:
  Acceptance(const model::Target& target, const data::Tokenizer& tokenizer, std::vector<EvalPrompt> prompts,
             AcceptanceSettings settings);

  /// A drafter that is not frozen is frozen in the target's dtype for the measurement and thawed afterwards.
  AcceptanceMetrics measure(model::Drafter& drafter);

  const std::vector<EvalPrompt>& prompts() const { return prompts_; }

  /// Token ids of the answers without a drafter, in the order of the prompts.
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
