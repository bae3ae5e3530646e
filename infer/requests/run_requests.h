#pragma once

#include <cstdint>
#include <vector>

#include "infer/engine/engine.h"
#include "infer/requests/batch_input.h"
#include "infer/requests/loaded_model.h"
#include "infer/requests/report.h"

namespace clover::infer {

/// Answers all lines with a new engine, for commands that measure or compare.  RunOutcome::seconds does not
/// include creating the engine and tokenising the first prompts.  `drafter` may be null.  options.kv_memory 0
/// means as much as the lines need.  InputError when a line cannot be answered, Interrupted when the user
/// stops the run.
RunOutcome run_requests(const model::Target& target, model::Drafter* drafter, const PromptEncoder& encoder,
                        EngineOptions options, const std::vector<BatchLine>& lines);

/// The bytes of a KV cache for `sequences` sequences of at most `tokens` tokens each, and for the rows of one
/// pass.  On a GPU at most default_cache_bytes; the engine then decodes fewer sequences at once.
int64_t kv_memory_for(const model::Target& target, const model::Drafter* drafter, int64_t sequences,
                      int64_t tokens, int64_t page_size);

}  // namespace clover::infer
