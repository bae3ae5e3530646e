#include "infer/batch_task.h"

#include <chrono>
#include <functional>

#include "data/error.h"

namespace clover::infer {
namespace {

using nlohmann::json;

json usage_of(const Completion& answer) {
  const int64_t completion = static_cast<int64_t>(answer.token_ids.size());
  return {{"prompt_tokens", answer.prompt_tokens},
          {"completion_tokens", completion},
          {"total_tokens", answer.prompt_tokens + completion}};
}

json openai_body(const BatchLine& line, const Completion& answer) {
  const bool chat = line.shape == LineShape::chat;
  json choice = {{"index", 0}, {"logprobs", nullptr}, {"finish_reason", answer.finish_reason}};
  if (chat) {
    choice["message"] = {{"role", "assistant"}, {"content", answer.text}, {"refusal", nullptr}};
  } else {
    choice["text"] = answer.text;
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {{"id", (chat ? "chatcmpl-" : "cmpl-") + std::to_string(line.number)},
          {"object", chat ? "chat.completion" : "text_completion"},
          {"created", std::chrono::duration_cast<std::chrono::seconds>(now).count()},
          {"model", line.record["body"].value("model", json())},
          {"choices", json::array({choice})},
          {"usage", usage_of(answer)}};
}

// The field of the only answer, or for a conversation the list over its turns.
json field(const BatchLine& line, const std::vector<Completion>& answers,
           const std::function<json(const Completion&)>& of) {
  if (line.shape != LineShape::turns) return of(answers.front());
  json list = json::array();
  for (const Completion& answer : answers) list.push_back(of(answer));
  return list;
}

}  // namespace

Request BatchTask::request(const PromptEncoder& prompts, int64_t context) const {
  Request request;
  request.tag = line_.number;
  request.prompt = prompts.encode(line_);
  const int64_t length = static_cast<int64_t>(request.prompt.size());
  const std::string turn = answers_.empty() ? "" : "turn " + std::to_string(answers_.size() + 1) + ": ";
  if (length == 0) throw data::InputError(turn + "expected a prompt, found one without tokens");
  if (length >= context) {
    throw data::InputError(turn + "expected a prompt of fewer than " + std::to_string(context) +
                           " tokens (the model's context), found " + std::to_string(length));
  }
  request.sampling = line_.sampling.rule;
  request.random = line_.random_key();
  request.max_tokens = line_.sampling.max_tokens;
  request.stop = line_.sampling.stop;
  request.continues_text = !line_.conversation();
  return request;
}

Request BatchTask::start(const PromptEncoder& prompts, int64_t context) {
  return request(prompts, context);
}

std::optional<Request> BatchTask::advance(Completion answer, const PromptEncoder& prompts, int64_t context) {
  answers_.push_back(std::move(answer));
  if (answers_.size() >= line_.turns.size()) return std::nullopt;
  line_.messages.push_back({"assistant", answers_.back().text});
  line_.messages.push_back({"user", line_.turns[answers_.size()]});
  return request(prompts, context);
}

json BatchTask::record(bool typical) const {
  if (line_.openai()) {
    const std::string number = std::to_string(line_.number);
    json record = {{"id", "batch_req_" + number},
                   {"custom_id", line_.id},
                   {"response",
                    {{"status_code", 200},
                     {"request_id", "req_" + number},
                     {"body", openai_body(line_, answers_.front())}}},
                   {"error", nullptr}};
    if (typical) record["verify"] = "typical";
    return record;
  }
  json record = line_.record;
  record.erase("verify");  // what it says must not be the request's
  record["line"] = line_.number;
  record["text"] = field(line_, answers_, [](const Completion& answer) { return json(answer.text); });
  record["token_ids"] =
      field(line_, answers_, [](const Completion& answer) { return json(answer.token_ids); });
  record["finish_reason"] =
      field(line_, answers_, [](const Completion& answer) { return json(answer.finish_reason); });
  record["usage"] = field(line_, answers_, usage_of);
  record["steps"] = field(line_, answers_, [](const Completion& answer) { return json(answer.steps); });
  if (typical) record["verify"] = "typical";
  return record;
}

json BatchTask::stats_record() const {
  json record = {{"line", line_.number}, {"id", line_.id}};
  if (!line_.category.empty()) record["category"] = line_.category;
  record["token_ids"] =
      field(line_, answers_, [](const Completion& answer) { return json(answer.token_ids); });
  record["finish_reason"] =
      field(line_, answers_, [](const Completion& answer) { return json(answer.finish_reason); });
  record["usage"] = field(line_, answers_, usage_of);
  record["steps"] = field(line_, answers_, [](const Completion& answer) { return json(answer.steps); });
  record["accepted_histogram"] =
      field(line_, answers_, [](const Completion& answer) { return json(answer.accepted_histogram); });
  return record;
}

}  // namespace clover::infer
