#include "train/evaluate/answer_requests.h"

#include <optional>

#include "data/files/error.h"
#include "infer/program/interrupt.h"
#include "infer/program/progress.h"

namespace clover::train {

std::vector<infer::Completion> answer_requests(infer::Engine& engine, int64_t max_batch, size_t count,
                                               const std::function<infer::Request(size_t)>& make_request,
                                               const std::string& label) {
  std::optional<infer::Progress> progress;
  if (!label.empty()) progress.emplace(label, static_cast<int64_t>(count));
  std::vector<infer::Completion> completions(count);
  size_t submitted = 0;
  while (submitted < count || !engine.idle()) {
    infer::stop_if_interrupted();
    // Twice the batch, so that a new sequence is at hand for every one that ends.
    while (submitted < count && static_cast<int64_t>(submitted) < engine.stats().requests + 2 * max_batch) {
      infer::Request request = make_request(submitted);
      request.tag = static_cast<int64_t>(submitted++);
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
