#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/training/token_store.h"

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

/// The first `limit` prompts of held-out samples, each with at most `max_tokens` tokens of its answer,
/// without those that leave no room for as many in the target's `context`.
std::vector<EvalPrompt> held_out_prompts(const data::TokenStore& store, int64_t limit, int64_t context,
                                         int64_t max_tokens);

}  // namespace clover::train
