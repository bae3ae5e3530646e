#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "infer/engine/engine.h"
#include "train/evaluate/eval_prompts.h"

namespace clover::train {

/// Greedy answers of up to `max_tokens` tokens to `prompts`, in their order, by a new engine whose KV cache
/// is as large as they need.  drafter: null for plain decoding.  recorded: gives
/// EngineOptions::recorded_answers, when the engine is about to need it, by index in `prompts`; empty: the
/// target decodes.  label: of the progress shown; "": none.  InputError when an answer ends with an error,
/// infer::Interrupted when the user stops.
std::vector<infer::Completion> answer_prompts(
    const model::Target& target, model::Drafter* drafter, const data::Tokenizer& tokenizer,
    infer::EngineOptions options, const std::vector<const EvalPrompt*>& prompts, int64_t max_tokens,
    const std::function<std::shared_ptr<const infer::RecordedAnswer>(size_t)>& recorded,
    const std::string& label);

}  // namespace clover::train
