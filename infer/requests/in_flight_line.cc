#include "infer/requests/in_flight_line.h"

#include <chrono>
#include <functional>
#include <span>

#include "data/files/error.h"

namespace clover::infer {
namespace {

using nlohmann::json;

/// OpenAI's "usage" object.
json usage_of(std::span<const Completion> answers) {
  int64_t prompt = 0, completion = 0;
  for (const Completion& answer : answers) {
    prompt += answer.prompt_tokens;
    completion += static_cast<int64_t>(answer.token_ids.size());
  }
  return {
      {"prompt_tokens", prompt}, {"completion_tokens", completion}, {"total_tokens", prompt + completion}};
}

json usage_of_answer(const Completion& answer) {
  return usage_of({&answer, 1});
}

json openai_choice(const Completion& answer, size_t index, bool chat) {
  json choice = {{"index", index}, {"logprobs", nullptr}, {"finish_reason", answer.finish_reason}};
  if (chat) {
    choice["message"] = {{"role", "assistant"}, {"content", answer.text}, {"refusal", nullptr}};
  } else {
    choice["text"] = answer.text;
  }
  return choice;
}

json openai_body(const BatchLine& line, const std::vector<Completion>& answers) {
  const bool chat = line.shape == LineShape::chat;
  json choices = json::array();
  for (const Completion& answer : answers) choices.push_back(openai_choice(answer, choices.size(), chat));
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {{"id", (chat ? "chatcmpl-" : "cmpl-") + std::to_string(line.number)},
          {"object", chat ? "chat.completion" : "text_completion"},
          {"created", std::chrono::duration_cast<std::chrono::seconds>(now).count()},
          {"model", line.record["body"].value("model", json())},
          {"choices", choices},
          {"usage", usage_of(answers)}};
}

/// value_of(answer) of the only answer, or the list of these values for all turns or prompts.
json values_of_answers(const BatchLine& line, const std::vector<Completion>& answers,
                       const std::function<json(const Completion&)>& value_of) {
  if (line.shape != LineShape::turns && line.prompt_count() == 1) return value_of(answers.front());
  json list = json::array();
  for (const Completion& answer : answers) list.push_back(value_of(answer));
  return list;
}

/// Adds the fields that the output record and the --stats record have in common.
void add_result(const BatchLine& line, const std::vector<Completion>& answers, json& record) {
  const auto per_answer = [&](const auto& value_of) { return values_of_answers(line, answers, value_of); };
  record["token_ids"] = per_answer([](const Completion& answer) { return json(answer.token_ids); });
  record["finish_reason"] = per_answer([](const Completion& answer) { return json(answer.finish_reason); });
  record["usage"] = per_answer(usage_of_answer);
  record["steps"] = per_answer([](const Completion& answer) { return json(answer.steps); });
}

}  // namespace

Request InFlightLine::make_request(const PromptEncoder& encoder, int64_t context, size_t prompt_index) const {
  Request request;
  request.tag = line_.number + static_cast<int64_t>(prompt_index) * max_lines;
  request.prompt = encoder.encode(line_, prompt_index);
  const int64_t length = static_cast<int64_t>(request.prompt.size());
  const std::string where = line_.prompt_count() > 1 ? "prompt[" + std::to_string(prompt_index) + "]: "
                            : answers_.empty()       ? ""
                                                     : "turn " + std::to_string(answers_.size() + 1) + ": ";
  if (length == 0) throw data::InputError(where + "expected a prompt, found one without tokens");
  if (length >= context) {
    throw data::InputError(where + "expected a prompt of fewer than " + std::to_string(context) +
                           " tokens (the model's context), found " + std::to_string(length));
  }
  request.sampling = line_.sampling.rule;
  request.controls = encoder.controls_for(line_.sampling.controls);
  request.random = line_.random_key(prompt_index);
  request.max_tokens = line_.sampling.max_tokens;
  request.stop = line_.sampling.stop;
  request.continues_text = !line_.conversation();
  return request;
}

std::vector<Request> InFlightLine::start(const PromptEncoder& encoder, int64_t context) {
  std::vector<Request> requests;
  for (size_t index = 0; index < line_.prompt_count(); ++index)
    requests.push_back(make_request(encoder, context, index));
  return requests;
}

std::optional<Request> InFlightLine::take_answer(Completion answer, const PromptEncoder& encoder,
                                                 int64_t context) {
  ++answered_;
  if (line_.prompt_count() > 1) {
    answers_.resize(line_.prompt_count());
    const size_t prompt_index = static_cast<size_t>(answer.tag / max_lines);
    answers_[prompt_index] = std::move(answer);
    return std::nullopt;
  }
  answers_.push_back(std::move(answer));
  if (done()) return std::nullopt;
  line_.messages.push_back({"assistant", answers_.back().text});
  line_.messages.push_back({"user", line_.turns[answers_.size()]});
  return make_request(encoder, context, 0);
}

json InFlightLine::record(bool typical) const {
  if (line_.openai()) {
    const std::string number = std::to_string(line_.number);
    json record = {
        {"id", "batch_req_" + number},
        {"custom_id", line_.id},
        {"response",
         {{"status_code", 200}, {"request_id", "req_" + number}, {"body", openai_body(line_, answers_)}}},
        {"error", nullptr}};
    if (typical) record["verify"] = "typical";
    return record;
  }
  json record = line_.record;
  record.erase("verify");  // a field of that name in the request must not look like ours
  record["line"] = line_.number;
  record["text"] =
      values_of_answers(line_, answers_, [](const Completion& answer) { return json(answer.text); });
  add_result(line_, answers_, record);
  if (typical) record["verify"] = "typical";
  return record;
}

std::string InFlightLine::record_text(bool typical) const {
  VerbatimFields verbatim = line_.openai() ? verbatim_id(line_) : line_.verbatim;
  for (const char* field : {"line", "text", "token_ids", "finish_reason", "usage", "steps", "verify"})
    verbatim.erase(field);
  return record_to_text(record(typical), verbatim);
}

json InFlightLine::stats_record() const {
  json record = {{"line", line_.number}, {"id", line_.id}};
  if (!line_.category.empty()) record["category"] = line_.category;
  add_result(line_, answers_, record);
  record["accepted_histogram"] = values_of_answers(
      line_, answers_, [](const Completion& answer) { return json(answer.accepted_histogram); });
  return record;
}

}  // namespace clover::infer
