#include "train/evaluate/answer_prompts.h"

#include <algorithm>
#include <optional>

#include "data/files/error.h"
#include "infer/program/interrupt.h"
#include "infer/program/progress.h"
#include "infer/requests/run_requests.h"

namespace clover::train {

std::vector<infer::Completion> answer_prompts(
    const model::Target& target, model::Drafter* drafter, const data::Tokenizer& tokenizer,
    infer::EngineOptions options, const std::vector<const EvalPrompt*>& prompts, int64_t max_tokens,
    const std::function<std::shared_ptr<const infer::RecordedAnswer>(size_t)>& recorded,
    const std::string& label) {
  const int64_t count = std::ssize(prompts);
  int64_t longest = 0;
  for (const EvalPrompt* prompt : prompts) longest = std::max(longest, std::ssize(prompt->ids));
  options.kv_memory = infer::kv_memory_for(target, drafter, std::min(options.max_batch, count),
                                           longest + max_tokens, options.page_size);
  options.recorded_answers = recorded != nullptr;
  infer::Engine engine(target, drafter, tokenizer, options);
  std::optional<infer::Progress> progress;
  if (!label.empty()) progress.emplace(label, count);
  std::vector<infer::Completion> completions(prompts.size());
  int64_t submitted = 0;
  while (submitted < count || !engine.idle()) {
    infer::stop_if_interrupted();
    for (; submitted < std::min(count, engine.stats().requests + options.max_batch); ++submitted) {
      infer::Request request;
      request.tag = submitted;
      request.prompt = prompts[submitted]->ids;
      request.max_tokens = max_tokens;
      if (recorded) request.recorded = recorded(submitted);
      engine.submit(std::move(request));
    }
    for (infer::Completion& completion : engine.step()) {
      const int64_t tag = completion.tag;
      if (!completion.error.empty())
        throw data::InputError("prompt " + std::to_string(tag + 1) +
                               " of the evaluation: " + completion.error + ".");
      completions[tag] = std::move(completion);
    }
    if (progress) progress->update(engine.stats().requests);
  }
  if (progress) progress->finish();
  return completions;
}

}  // namespace clover::train
