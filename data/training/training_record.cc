#include "data/training/training_record.h"

#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "data/chat/chat_fields.h"
#include "data/chat/messages.h"
#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/json_fields.h"
#include "data/files/lossless_json.h"
#include "data/training/loss_fields.h"

namespace clover::data {
namespace {

using Json = nlohmann::json;

bool has(const Json& record, const char* key) {
  const auto found = record.find(key);
  return found != record.end() && !found->is_null();
}

/// Whether the record is a line of a batch job's output.
bool is_batch_output(const Json& record) {
  for (const char* key : {"token_ids", "finish_reason", "usage", "steps", "line"})
    if (!has(record, key)) return false;
  return true;
}

const std::string& string_field(const Json& record, const char* key) {
  return as_string(member(record, "", key), key);
}

std::vector<std::string> as_strings(const Json& value, const std::string& path) {
  std::vector<std::string> strings;
  for (const Json& item : as_list(value, path))
    strings.push_back(as_string(item, element_path(path, strings.size())));
  return strings;
}

std::vector<int64_t> as_token_ids(const Json& value, const std::string& path) {
  std::vector<int64_t> ids;
  for (const Json& item : as_list(value, path)) {
    // Only the type is checked here; ids outside the vocabulary are refused later.
    if (!item.is_number_integer()) {
      fail_expected(element_path(path, ids.size()), "a token id",
                    item.is_number() ? "the number " + item.dump() : json_type_name(item));
    }
    if (item.is_number_unsigned() && item.get<uint64_t>() > std::numeric_limits<int32_t>::max()) {
      fail_expected(element_path(path, ids.size()), "a token id", item.dump());
    }
    ids.push_back(item.get<int64_t>());
  }
  return ids;
}

TokensRecord tokens_record(const Json& record) {
  TokensRecord tokens{as_token_ids(record["token_ids"], "token_ids"), {}};
  for (const Json& item : as_list(record["loss_mask"], "loss_mask")) {
    const bool is_flag = item.is_boolean() || (item.is_number_integer() && (item == 0 || item == 1));
    if (!is_flag) {
      fail_expected(element_path("loss_mask", tokens.supervised.size()), "0 or 1",
                    item.is_number() ? item.dump() : json_type_name(item));
    }
    tokens.supervised.push_back(item == 1 || item == true);
  }
  if (tokens.supervised.size() != tokens.ids.size()) {
    fail_expected("loss_mask",
                  ("as many values as token_ids (" + std::to_string(tokens.ids.size()) + ")").c_str(),
                  std::to_string(tokens.supervised.size()));
  }
  return tokens;
}

/// A prompt that is a text or a list of token ids.
BatchOutputRecord::Prompt read_prompt(const Json& value, const std::string& path) {
  if (value.is_array()) return {"", as_token_ids(value, path)};
  return {as_string(value, path), {}};
}

/// Reads "prompt": a text, token ids, or a list of such prompts, one for each answer.
void read_prompts(const Json& record, BatchOutputRecord& output) {
  const Json& prompt = member(record, "", "prompt");
  const bool is_list = prompt.is_array() && !prompt.empty() && !prompt[0].is_number();
  if (is_list) {
    for (const Json& item : prompt)
      output.prompts.push_back(read_prompt(item, element_path("prompt", output.prompts.size())));
  } else if (prompt.is_array()) {
    output.prompts.push_back(read_prompt(prompt, "prompt"));
  }
  output.prompt = output.prompts.empty() ? as_string(prompt, "prompt") : output.prompts[0].text;
}

/// Reads the answers, at most `max_answers`.  `expected` says in the error message how many there should be.
void read_answers(const Json& record, const char* expected, size_t max_answers, BatchOutputRecord& output) {
  for (const Json& item : as_list(record["token_ids"], "token_ids")) {
    output.answers.push_back(as_token_ids(item, element_path("token_ids", output.answers.size())));
  }
  output.texts = as_strings(member(record, "", "text"), "text");
  if (output.answers.empty() || output.answers.size() > max_answers) {
    fail_expected("token_ids", expected, std::to_string(output.answers.size()) + " lists");
  }
  if (output.texts.size() != output.answers.size()) {
    fail_expected("text",
                  ("as many answers as token_ids (" + std::to_string(output.answers.size()) + ")").c_str(),
                  std::to_string(output.texts.size()));
  }
}

void read_single_answer(const Json& record, BatchOutputRecord& output) {
  output.answers.push_back(as_token_ids(record["token_ids"], "token_ids"));
  output.texts.push_back(string_field(record, "text"));
}

BatchOutputRecord batch_output_record(const Json& record, OrderedJsonLine& line) {
  BatchOutputRecord output;
  if (!has(record, "turns") && !has(record, "messages")) {
    refuse_chat_fields(record, "prompt");
    read_prompts(record, output);
    if (output.prompts.size() < 2) {
      read_single_answer(record, output);
    } else {
      read_answers(record, "one list a prompt", output.prompts.size(), output);
      if (output.answers.size() < output.prompts.size())
        fail_expected("token_ids", "one list a prompt", std::to_string(output.answers.size()) + " lists");
    }
    return output;
  }
  output.is_chat = true;
  if (!has(record, "turns")) {
    read_single_answer(record, output);
    output.messages = read_messages(record["messages"], "messages", line);
  } else {
    output.later_turns = as_strings(record["turns"], "turns");
    if (output.later_turns.empty()) fail_expected("turns", "at least one turn", "none");
    output.messages.push_back({"user", output.later_turns.front()});
    output.later_turns.erase(output.later_turns.begin());
    read_answers(record, "one list a turn", output.later_turns.size() + 1, output);
  }
  refuse_question_fields(record, has(record, "turns") ? "turns" : "messages");
  read_chat_fields(record, line, output.messages, output.arguments);
  return output;
}

/// Reads Alpaca's history, a list of [question, answer] before the question.
std::vector<Message> read_history(const Json& history) {
  std::vector<Message> messages;
  const Json& pairs = as_list(history, "history");
  for (size_t i = 0; i < pairs.size(); ++i) {
    const std::string pair_path = element_path("history", i);
    if (as_list(pairs[i], pair_path).size() != 2)
      fail_expected(pair_path, "a question and its answer", std::to_string(pairs[i].size()) + " texts");
    messages.push_back({"user", as_string(pairs[i][0], element_path(pair_path, 0))});
    messages.push_back({"assistant", as_string(pairs[i][1], element_path(pair_path, 1))});
  }
  return messages;
}

/// The first of `names` that the record has a value for, or null.
const char* first_of(const Json& record, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (has(record, name)) return name;
  return nullptr;
}

/// Reads an answer, or the first of a list of equivalent answers, as in SQuAD.
std::string read_answer(const Json& record, const char* name) {
  const Json* answer = &record[name];
  std::string path = name;
  if (answer->is_object()) {
    answer = &member(*answer, path, "text");
    path += ".text";
  }
  if (!answer->is_array()) return as_string(*answer, path);
  if (answer->empty()) fail_expected(path, "an answer", "none");
  path = element_path(path, 0);
  if ((*answer)[0].is_object()) return as_string(member((*answer)[0], path, "text"), path + ".text");
  return as_string((*answer)[0], path);
}

/// The names of the fields that hold question and answer, of {"question", "answer"} and its variants.
struct QuestionForm {
  const char *question, *answer;
};
std::optional<QuestionForm> question_form(const Json& record) {
  const QuestionForm question{first_of(record, {"question", "query"}),
                              first_of(record, {"answer", "answers", "response"})};
  if (question.question && question.answer) return question;
  const QuestionForm instruction{first_of(record, {"instruction"}),
                                 first_of(record, {"output", "response", "answer"})};
  if (instruction.question && instruction.answer) return instruction;
  return std::nullopt;
}

ChatRecord question_record(const Json& record, const QuestionForm& form, OrderedJsonLine& line) {
  ChatRecord chat;
  if (!is_blank_field(record, "history")) chat.messages = read_history(record["history"]);
  const bool is_instruction = form.question == std::string_view("instruction");
  std::string question = string_field(record, form.question);
  const auto optional_text = [&](const char* name) {
    return has(record, name) ? string_field(record, name) : std::string();
  };
  if (is_instruction && !optional_text("input").empty()) question += "\n\n" + optional_text("input");
  // Dolly's context comes after the question, SQuAD's before it.
  if (const std::string context = optional_text("context"); !context.empty())
    question = is_instruction ? question + "\n\n" + context : context + "\n\n" + question;
  chat.messages.push_back({"user", std::move(question)});
  chat.messages.push_back({"assistant", read_answer(record, form.answer)});
  read_chat_fields(record, line, chat.messages, chat.arguments);
  return chat;
}

/// A record with the messages in the field `name`: messages, conversations or conversation.
ChatRecord chat_record(const Json& record, const char* name, OrderedJsonLine& line) {
  ChatRecord chat{read_messages(record[name], name, line)};
  chat.supervised_messages = read_supervised_messages(record, name, chat.messages.size());
  refuse_question_fields(record, name);
  const size_t message_count = chat.messages.size();  // without a system message from another field
  read_chat_fields(record, line, chat.messages, chat.arguments);
  if (!chat.supervised_messages.empty())
    chat.supervised_messages.insert(chat.supervised_messages.begin(), chat.messages.size() - message_count,
                                    0);
  return chat;
}

/// TRL's form with lists of messages as prompt and completion; only the completion is supervised.
ChatRecord chat_completion_record(const Json& record, OrderedJsonLine& line) {
  ChatRecord chat{read_messages(record["prompt"], "prompt", line)};
  const std::vector<Message> completion = read_messages(record["completion"], "completion", line);
  const std::vector<uint8_t> supervised = read_supervised_messages(record, "completion", completion.size());
  refuse_question_fields(record, "prompt");
  chat.messages.insert(chat.messages.end(), completion.begin(), completion.end());
  read_chat_fields(record, line, chat.messages, chat.arguments);
  chat.supervised_messages.assign(chat.messages.size() - completion.size(), 0);
  for (size_t i = 0; i < completion.size(); ++i)
    chat.supervised_messages.push_back(supervised.empty() || supervised[i]);
  return chat;
}

CompletionRecord completion_record(const Json& record) {
  refuse_chat_fields(record, "prompt and completion");
  return {string_field(record, "prompt"), string_field(record, "completion")};
}

TextRecord text_record(const Json& record) {
  refuse_chat_fields(record, "text");
  return {string_field(record, "text")};
}

std::string key_list(const Json& record) {
  std::string keys;
  for (const auto& [key, value] : record.items()) {
    if (keys.size() > 200) return keys + ", ...";
    keys += (keys.empty() ? "\"" : ", \"") + key + "\"";
  }
  return keys.empty() ? "an empty object" : keys;
}

}  // namespace

TrainingRecord parse_training_record(std::string_view text) {
  const LosslessJson lossless(text);
  const Json record = parse_json(lossless.parseable(), "the record");
  if (!record.is_object()) fail_expected("the record", "a JSON object", json_type_name(record));
  const auto has = [&](const char* key) { return first_of(record, {key}) != nullptr; };
  OrderedJsonLine line(lossless.parseable());

  TrainingRecord parsed;
  parsed.category = category_of(record);
  check_record_weight(record);
  if (has("token_ids") && has("loss_mask") && !is_batch_output(record)) {
    parsed.content = tokens_record(record);
  } else if (has("token_ids") && has("finish_reason")) {
    parsed.content = batch_output_record(record, line);
  } else if (has("token_ids")) {
    fail_expected("the record", "\"loss_mask\" or \"finish_reason\" beside \"token_ids\"", "neither");
  } else if (!is_blank_field(record, "error") && record["error"] != false) {
    throw InputError("the record is an error of a batch job: " + record["error"].dump().substr(0, 200));
  } else if (const char* name = first_of(record, {"messages", "conversations", "conversation"})) {
    parsed.content = chat_record(record, name, line);
  } else if (has("prompt") && has("completion")) {
    const bool is_chat = record["prompt"].is_array() && record["completion"].is_array();
    if (is_chat) {
      parsed.content = chat_completion_record(record, line);
    } else {
      parsed.content = completion_record(record);
    }
  } else if (const auto form = question_form(record)) {
    parsed.content = question_record(record, *form, line);
  } else if (has("text")) {
    parsed.content = text_record(record);
  } else {
    fail_expected(
        "the record",
        "messages, conversations, prompt and completion, question and answer, instruction and output, text, "
        "token_ids and loss_mask, or a line of a batch job's output that answers a request in a short form",
        key_list(record));
  }
  return parsed;
}

}  // namespace clover::data
