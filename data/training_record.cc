#include "data/training_record.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "data/error.h"
#include "data/files.h"
#include "data/json_fields.h"
#include "data/messages.h"
#include "data/written_json.h"

namespace clover::data {
namespace {

using Json = nlohmann::json;

const std::string& string_field(const Json& record, const char* key) {
  return as_string(member(record, "", key), key);
}

std::vector<std::string> as_strings(const Json& value, const std::string& path) {
  std::vector<std::string> strings;
  for (const Json& item : as_list(value, path))
    strings.push_back(as_string(item, element(path, strings.size())));
  return strings;
}

std::vector<int64_t> as_token_ids(const Json& value, const std::string& path) {
  std::vector<int64_t> ids;
  for (const Json& item : as_list(value, path)) {
    // Out-of-vocabulary ids are found later; here only what does not fit the type.
    if (!item.is_number_integer()) {
      fail_expected(element(path, ids.size()), "a token id",
                    item.is_number() ? "the number " + item.dump() : kind_of(item));
    }
    if (item.is_number_unsigned() && item.get<uint64_t>() > std::numeric_limits<int32_t>::max()) {
      fail_expected(element(path, ids.size()), "a token id", item.dump());
    }
    ids.push_back(item.get<int64_t>());
  }
  return ids;
}

/// ShareGPT: who speaks is in "from", what they say in "value".
std::vector<Message> as_sharegpt(const Json& value) {
  std::vector<Message> messages;
  for (const Json& item : as_list(value, "conversations")) {
    const std::string here = element("conversations", messages.size());
    if (!item.is_object()) fail_expected(here, "an object", kind_of(item));
    const std::string& from = as_string(member(item, here, "from"), here + ".from");
    const char* role = from == "human" || from == "user"                           ? "user"
                       : from == "gpt" || from == "assistant" || from == "chatgpt" ? "assistant"
                       : from == "system"                                          ? "system"
                                                                                   : nullptr;
    if (role == nullptr) fail_expected(here + ".from", "human, gpt or system", "\"" + from + "\"");
    messages.push_back({role, as_string(member(item, here, "value"), here + ".value")});
  }
  if (messages.empty()) fail_expected("conversations", "at least one message", "none");
  return messages;
}

TokensRecord tokens_record(const Json& record) {
  TokensRecord tokens{as_token_ids(record["token_ids"], "token_ids"), {}};
  for (const Json& item : as_list(record["loss_mask"], "loss_mask")) {
    const bool fits = item.is_boolean() || (item.is_number_integer() && (item == 0 || item == 1));
    if (!fits) {
      fail_expected(element("loss_mask", tokens.supervised.size()), "0 or 1",
                    item.is_number() ? item.dump() : kind_of(item));
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

AnsweredRecord answered_record(const Json& record) {
  AnsweredRecord answered;
  const Json& ids = as_list(record["token_ids"], "token_ids");
  if (!record.contains("turns")) {
    answered.answers.push_back(as_token_ids(ids, "token_ids"));
    answered.texts.push_back(string_field(record, "text"));
    answered.is_chat = record.contains("messages");
    if (answered.is_chat) {
      answered.messages = read_messages(record["messages"], "messages");
    } else {
      const Json& prompt = member(record, "", "prompt");
      const bool list_of_one = prompt.is_array() && prompt.size() == 1;
      answered.prompt = list_of_one ? as_string(prompt[0], "prompt[0]") : as_string(prompt, "prompt");
    }
    return answered;
  }
  answered.is_chat = true;
  answered.later_turns = as_strings(record["turns"], "turns");
  if (answered.later_turns.empty()) fail_expected("turns", "at least one turn", "none");
  answered.messages.push_back({"user", answered.later_turns.front()});
  answered.later_turns.erase(answered.later_turns.begin());
  for (const Json& item : ids) {
    answered.answers.push_back(as_token_ids(item, element("token_ids", answered.answers.size())));
  }
  answered.texts = as_strings(member(record, "", "text"), "text");
  if (answered.answers.empty() || answered.answers.size() > answered.later_turns.size() + 1) {
    fail_expected("token_ids", "one list a turn", std::to_string(answered.answers.size()) + " lists");
  }
  if (answered.texts.size() != answered.answers.size()) {
    fail_expected("text",
                  ("as many answers as token_ids (" + std::to_string(answered.answers.size()) + ")").c_str(),
                  std::to_string(answered.texts.size()));
  }
  return answered;
}

/// What stands beside a conversation and would be said to the model with it, if tools were known here.
void refuse_parts_left_out(const Json& record) {
  for (const char* key : {"tools", "functions", "history"}) {
    const Json part = record.value(key, Json());
    const bool says_nothing = part.is_null() || part.empty() || part == "" || part == "[]";
    if (!says_nothing) fail_expected(key, "none, as it is not supported", kind_of(part));
  }
}

/// A system message that stands beside a conversation, as ShareGPT's and Alpaca's records may have one.
ChatRecord with_system(const Json& record, ChatRecord chat) {
  refuse_parts_left_out(record);
  if (!record.contains("system") || record["system"].is_null()) return chat;
  const std::string& system = string_field(record, "system");
  if (!system.empty()) chat.messages.insert(chat.messages.begin(), {"system", system});
  return chat;
}

ChatRecord question_and_answer(std::string question, const std::string& answer) {
  return {{{"user", std::move(question)}, {"assistant", answer}}};
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

TrainingRecord parse_training_record(std::string_view line) {
  const Json record = parse_json(WrittenJson(line).readable(), "the record");
  if (!record.is_object()) fail_expected("the record", "a JSON object", kind_of(record));
  const auto has = [&](const char* key) { return record.contains(key); };

  TrainingRecord parsed;
  if (has("category") && !record["category"].is_null()) parsed.category = string_field(record, "category");
  if (has("token_ids") && has("loss_mask")) {
    parsed.content = tokens_record(record);
  } else if (has("token_ids") && has("finish_reason")) {
    parsed.content = answered_record(record);
  } else if (has("token_ids")) {
    fail_expected("the record", "\"loss_mask\" or \"finish_reason\" beside \"token_ids\"", "neither");
  } else if (has("error") && !record["error"].is_null()) {
    throw InputError("the record is an error of a batch job: " + record["error"].dump().substr(0, 200));
  } else if (has("messages")) {
    refuse_parts_left_out(record);
    parsed.content = ChatRecord{read_messages(record["messages"], "messages")};
  } else if (has("conversations")) {
    parsed.content = with_system(record, {as_sharegpt(record["conversations"])});
  } else if (has("prompt") && has("completion")) {
    parsed.content = CompletionRecord{string_field(record, "prompt"), string_field(record, "completion")};
  } else if (has("question") && has("answer")) {
    parsed.content = question_and_answer(string_field(record, "question"), string_field(record, "answer"));
  } else if (has("instruction") && has("output")) {
    std::string question = string_field(record, "instruction");
    if (has("input") && !string_field(record, "input").empty())
      question += "\n\n" + string_field(record, "input");
    parsed.content =
        with_system(record, question_and_answer(std::move(question), string_field(record, "output")));
  } else if (has("text")) {
    parsed.content = TextRecord{string_field(record, "text")};
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
