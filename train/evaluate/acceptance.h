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
  std::string category;           // as in the sample, or ""
  std::vector<int64_t> answer{};  // what follows in the sample, perhaps the target's answer; or empty
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
  bool shows_progress = false;
};

/// Results of decoding with a drafter.
struct AcceptanceMetrics {
  double tokens_per_step = 0;  // the mean over passes, bonus tokens included
  int64_t tokens = 0;          // of the answers
  int64_t passes = 0;          // decode passes, summed over sequences
  int64_t mismatches = 0;      // answers that differ from plain decoding; always 0 unless there is a bug
  double seconds = 0;          // of the measurement; the first one also finds the target's answers
  std::vector<int64_t> accepted_histogram;  // [k]: passes of a sequence that accepted k guesses
  nlohmann::json by_category;               // {category: tokens per step}
};

/// Measures acceptance: how many tokens a step greedy decoding yields with a drafter, by the engine that
/// serves requests (infer/engine/).  The first measurement finds the target's own answers: where the target
/// does not answer as the sample does, it decodes plainly.  Of each tree the target's passes hold only the
/// guesses that are on the path of its answer (Request::expected_answer), which are a fraction of the rows.
class Acceptance {
 public:
  Acceptance(const model::Target& target, const data::Tokenizer& tokenizer, std::vector<EvalPrompt> prompts,
             AcceptanceSettings settings);

  /// A thawed drafter is frozen in the target's dtype for the measurement and thawed afterwards.
  AcceptanceMetrics measure(model::Drafter& drafter);

  size_t prompt_count() const { return prompts_.size(); }
  /// Token ids of the target's answers, in the order of the prompts.  Only after `measure`.
  const std::vector<std::vector<int64_t>>& answers() const { return answers_; }

 private:
  /// Decodes these prompts; the completions are in the order of `indices`.  drafter: null for plain decoding.
  std::vector<infer::Completion> decode(model::Drafter* drafter, std::span<const size_t> indices,
                                        const std::string& progress_label) const;
  bool find_answers(std::span<const infer::Completion> completions);
  AcceptanceMetrics metrics_of(std::span<const infer::Completion> completions);

  const model::Target& target_;
  const data::Tokenizer& tokenizer_;
  std::vector<EvalPrompt> prompts_;
  AcceptanceSettings settings_;
  std::vector<std::vector<int64_t>> answers_;  // until find_answers those of the samples
  bool found_answers_ = false;
  std::vector<char> differs_;  // [prompts] 1: an answer with the drafter differed from plain decoding's
};

}  // namespace clover::train
