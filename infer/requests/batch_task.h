#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "infer/engine/request.h"
#include "infer/requests/batch_input.h"
#include "infer/requests/loaded_model.h"

namespace clover::infer {

/// One line of a batch on its way through the engine: one request, one a prompt of several, or one a turn of
/// a conversation.
class BatchTask {
 public:
  explicit BatchTask(BatchLine line) : line_(std::move(line)) {}

  /// The number of the line that a request with this tag is of.
  static int64_t line_of(int64_t tag) { return tag % most_lines; }

  /// The first requests, one for each prompt.  InputError when a prompt is empty or fills the context.
  std::vector<Request> start(const PromptEncoder& prompts, int64_t context);

  /// Takes the answer to one of them; the next turn's request, if there is one.
  std::optional<Request> advance(Completion answer, const PromptEncoder& prompts, int64_t context);

  /// Whether nothing is left to be answered.
  bool done() const { return answered_ == std::max(line_.choices(), line_.turns.size()); }

  const BatchLine& line() const { return line_; }
  const std::vector<Completion>& answers() const { return answers_; }  // one a turn, or a prompt

  /// The line of the output file: the input's fields and the answer, or the OpenAI batch response.
  nlohmann::json record(bool typical) const;

  /// The same as text, with numbers of the input's fields as they are written there.
  std::string record_text(bool typical) const;

  /// The line of --stats.
  nlohmann::json stats_record() const;

 private:
  static constexpr int64_t most_lines = int64_t{1} << 40;
  Request request(const PromptEncoder& prompts, int64_t context, size_t choice) const;

  BatchLine line_;
  std::vector<Completion> answers_;
  size_t answered_ = 0;
};

}  // namespace clover::infer
