#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "infer/batch_input.h"
#include "infer/loaded_model.h"
#include "infer/request.h"

namespace clover::infer {

/// One line of a batch on its way through the engine: one request, or one a turn of a conversation.
class BatchTask {
 public:
  explicit BatchTask(BatchLine line) : line_(std::move(line)) {}

  /// The (first) request.  InputError when the prompt is empty or fills the context.
  Request start(const PromptEncoder& prompts, int64_t context);

  /// Takes the answer; the next turn's request, or none when the line is done.
  std::optional<Request> advance(Completion answer, const PromptEncoder& prompts, int64_t context);

  const BatchLine& line() const { return line_; }
  const std::vector<Completion>& answers() const { return answers_; }  // one a turn

  /// The line of the output file: the input's fields and the answer, or the OpenAI batch response.
  nlohmann::json record(bool typical) const;

  /// The line of --stats.
  nlohmann::json stats_record() const;

 private:
  Request request(const PromptEncoder& prompts, int64_t context) const;

  BatchLine line_;
  std::vector<Completion> answers_;
};

}  // namespace clover::infer
