#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "infer/engine/request.h"
#include "infer/requests/batch_input.h"
#include "infer/requests/prompt_encoder.h"

namespace clover::infer {

/// A line of a batch file while the engine decodes it.  It becomes one engine request, one for each prompt of
/// a list of prompts, or one for each turn of a conversation.  Their answers become the line's output record.
class InFlightLine {
 public:
  explicit InFlightLine(BatchLine line) : line_(std::move(line)) {}

  /// The line number of the request with this tag (Request::tag).
  static int64_t line_number_of(int64_t tag) { return tag % max_lines; }

  /// The first requests, one for each prompt.  InputError when a prompt is empty or has `context` tokens or
  /// more.
  std::vector<Request> start(const PromptEncoder& encoder, int64_t context);

  /// Takes the answer to one of the requests, in any order.  Returns the request of the next turn, if there
  /// is one.
  std::optional<Request> take_answer(Completion answer, const PromptEncoder& encoder, int64_t context);

  /// Whether all prompts or turns are answered.
  bool done() const { return answered_ == std::max(line_.prompt_count(), line_.turns.size()); }

  const BatchLine& input() const { return line_; }
  /// One for each prompt or turn, in the line's order.
  const std::vector<Completion>& answers() const { return answers_; }

  /// The record of the output file: the line's own fields and the answer, or OpenAI's batch response.
  /// `typical`: the record says that verification was lossy.
  nlohmann::json record(bool typical) const;

  /// `record` as one line of JSON, in which BatchLine::verbatim fields are as the line wrote them.
  std::string record_text(bool typical) const;

  /// The record of the --stats file.
  nlohmann::json stats_record() const;

 private:
  static constexpr int64_t max_lines = int64_t{1} << 40;  // a tag is line number + prompt index * max_lines
  Request make_request(const PromptEncoder& encoder, int64_t context, size_t prompt_index) const;

  BatchLine line_;
  std::vector<Completion> answers_;
  size_t answered_ = 0;  // prompts or turns
};

}  // namespace clover::infer
