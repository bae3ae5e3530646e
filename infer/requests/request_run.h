#pragma once

#include <cstdint>
#include <vector>

#include "infer/engine/engine.h"
#include "infer/requests/batch_input.h"
#include "infer/requests/loaded_model.h"
#include "infer/requests/report.h"

namespace clover::infer {

/// Bytes of keys and values for `sequences` sequences of at most `tokens` tokens each, with room for the rows
/// of a pass.
int64_t kv_memory_for(const model::Target& target, const model::Drafter* drafter, int64_t sequences,
                      int64_t tokens, int64_t page_size);

/// Longest text a line can come to, prompt and answers together, at most the context.
int64_t longest_sequence(const std::vector<BatchLine>& lines, const PromptEncoder& prompts, int64_t context);

/// Answers all lines with a new engine.  Engine and tokens of the first requests are made before the clock
/// starts.  kv_memory 0 in `options` stands for what the lines need.  InputError when a line cannot be
/// answered, Interrupted when the user stops it.
RunOutcome run_requests(const model::Target& target, model::Drafter* drafter, const PromptEncoder& prompts,
                        EngineOptions options, const std::vector<BatchLine>& lines);

}  // namespace clover::infer
