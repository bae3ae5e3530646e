#include "data/messages.h"

#include "data/error.h"
#include "data/json_fields.h"

namespace clover::data {
namespace {

using Json = nlohmann::json;

/// What is said: a string, or OpenAI's list of parts, of which only text is known here.
std::string as_content(const Json& value, const std::string& path) {
  if (!value.is_array()) return as_string(value, path);
  std::string text;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string here = element(path, i);
    if (!value[i].is_object()) fail_expected(here, "an object", kind_of(value[i]));
    const std::string& type = as_string(member(value[i], here, "type"), here + ".type");
    if (type != "text") fail_expected(here + ".type", "\"text\"", "\"" + type + "\"");
    text += as_string(member(value[i], here, "text"), here + ".text");
  }
  return text;
}

}  // namespace

std::vector<Message> read_messages(const Json& value, const std::string& path) {
  std::vector<Message> messages;
  for (const Json& item : as_list(value, path)) {
    const std::string here = element(path, messages.size());
    if (!item.is_object()) fail_expected(here, "an object", kind_of(item));
    for (const char* unsupported : {"tool_calls", "tool_call_id", "function_call"})
      if (const Json part = item.value(unsupported, Json()); !part.is_null() && part != Json::array())
        throw InputError(here + ": " + unsupported + " is not supported");
    Message message{as_string(member(item, here, "role"), here + ".role"),
                    as_content(member(item, here, "content"), here + ".content")};
    if (message.role != "system" && message.role != "user" && message.role != "assistant") {
      fail_expected(here + ".role", "system, user or assistant", "\"" + message.role + "\"");
    }
    messages.push_back(std::move(message));
  }
  if (messages.empty()) fail_expected(path, "at least one message", "none");
  return messages;
}

}  // namespace clover::data
