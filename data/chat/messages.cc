#include "data/chat/messages.h"

#include <array>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/json_fields.h"

namespace clover::data {
namespace {

using Json = nlohmann::json;

/// Speakers as data sets name them, and the role of each in templates.
constexpr std::array<std::pair<std::string_view, std::string_view>, 17> speakers = {{
    {"system", "system"},
    {"user", "user"},
    {"human", "user"},
    {"assistant", "assistant"},
    {"gpt", "assistant"},
    {"chatgpt", "assistant"},
    {"bing", "assistant"},
    {"bard", "assistant"},
    {"model", "assistant"},
    {"function_call", "assistant"},
    {"developer", "developer"},
    {"tool", "tool"},
    {"observation", "tool"},
    {"function_response", "tool"},
    {"tool_response", "tool"},
    {"ipython", "tool"},
    {"function", "function"},
}};

/// The role of a speaker.  In a field "role" (`is_role_field`), not "from", only the roles of templates,
/// human and gpt are allowed.
std::string as_role(const std::string& name, const std::string& path, bool is_role_field) {
  for (const auto& [speaker, role] : speakers) {
    if (name == speaker && (!is_role_field || speaker == role || name == "human" || name == "gpt"))
      return std::string(role);
  }
  fail_expected(path,
                is_role_field ? "system, user, assistant, tool or developer"
                              : "human, gpt, system, tool, function_call or observation",
                "\"" + name.substr(0, 100) + "\"");
}

/// Whether a field controls the loss (data/training/loss_fields.h) and is not shown to the model.
bool is_for_training(std::string_view name) {
  return name == "weight" || name == "train" || name == "training" || name == "loss_mask" || name == "loss";
}

/// Parses the arguments of function calls, which OpenAI writes as a JSON text and templates take as an
/// object.
void read_arguments(nlohmann::ordered_json& calls) {
  for (auto& call : calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    auto& function = call["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    const std::string text = function["arguments"].get<std::string>();
    try {
      parse_json(text, "arguments");  // checks syntax, duplicate keys and depth
    } catch (const InputError&) {
      continue;  // they stay a text
    }
    const auto parsed = nlohmann::ordered_json::parse(text);
    if (parsed.is_object()) function["arguments"] = parsed;
  }
}

class MessageReader {
 public:
  MessageReader(const std::string& path, OrderedJsonLine& line) : path_(path), line_(line) {}

  void read(const Json& item, std::vector<Message>& messages) {
    const std::string item_path = element_path(path_, index_);
    if (!item.is_object()) fail_expected(item_path, "an object", json_type_name(item));
    const auto has = [&](const char* key) { return item.contains(key) && !item[key].is_null(); };
    if (!has("role") && !has("from") && has("output")) {
      read_pair(item, item_path, messages);
    } else {
      const char* role_key = has("role") || !has("from") ? "role" : "from";
      const char* content_key = has("content") || !has("value") ? "content" : "value";
      Message message{as_role(as_string(member(item, item_path, role_key), item_path + "." + role_key),
                              item_path + "." + role_key, std::string_view(role_key) == "role"),
                      "", read_fields(item, {role_key, content_key})};
      const bool has_only_calls =
          message.fields && message.fields->contains("tool_calls") && !has(content_key);
      if (!has_only_calls)
        message.content = read_content(member(item, item_path, content_key), item_path + "." + content_key);
      messages.push_back(std::move(message));
    }
    ++index_;
  }

 private:
  /// {"input", "output"}, with or without "system".
  void read_pair(const Json& item, const std::string& item_path, std::vector<Message>& messages) {
    for (const auto& [key, role] :
         {std::pair{"system", "system"}, {"input", "user"}, {"output", "assistant"}}) {
      if (!item.contains(key) || item[key].is_null()) continue;
      std::string content = read_content(item[key], item_path + "." + key);
      if (content.empty() && role != std::string_view("assistant")) continue;
      messages.push_back({role, std::move(content)});
    }
  }

  std::shared_ptr<const nlohmann::ordered_json> read_fields(
      const Json& item, const std::array<std::string_view, 2>& main_keys) {
    nlohmann::ordered_json fields;
    for (const auto& [key, value] : item.items()) {
      const bool is_blank =
          value.is_null() || ((value.is_structured() || value.is_string()) && value.empty()) || value == "";
      if (is_blank || key == main_keys[0] || key == main_keys[1] || is_for_training(key)) continue;
      fields[key] = value.is_structured()
                        ? line_.at("/" + path_ + "/" + std::to_string(index_) + "/" + escaped(key))
                        : nlohmann::ordered_json(value);
      if (key == "tool_calls") read_arguments(fields[key]);
    }
    if (fields.empty()) return nullptr;
    return std::make_shared<const nlohmann::ordered_json>(std::move(fields));
  }

  /// A key as part of a JSON pointer.
  static std::string escaped(std::string_view key) {
    std::string text;
    for (const char c : key) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    return text;
  }

  const std::string& path_;
  OrderedJsonLine& line_;
  size_t index_ = 0;
};

}  // namespace

nlohmann::ordered_json OrderedJsonLine::at(const std::string& path) {
  try {
    if (!parsed_) parsed_ = nlohmann::ordered_json::parse(line_);
  } catch (const nlohmann::json::exception&) {  // such as a number out of range
    throw InputError("the record: expected JSON that can be read in its order, found another");
  }
  return parsed_->at(nlohmann::ordered_json::json_pointer(pointer_prefix_ + path));
}

std::string read_content(const Json& value, const std::string& path) {
  if (!value.is_array()) return as_string(value, path);
  std::string text;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string item_path = element_path(path, i);
    if (!value[i].is_object()) fail_expected(item_path, "an object", json_type_name(value[i]));
    const std::string& type = as_string(member(value[i], item_path, "type"), item_path + ".type");
    if (type != "text") fail_expected(item_path + ".type", "\"text\"", "\"" + type + "\"");
    text += as_string(member(value[i], item_path, "text"), item_path + ".text");
  }
  return text;
}

std::vector<Message> read_messages(const Json& value, const std::string& path, OrderedJsonLine& line) {
  std::vector<Message> messages;
  MessageReader reader(path, line);
  for (const Json& item : as_list(value, path)) reader.read(item, messages);
  if (messages.empty()) fail_expected(path, "at least one message", "none");
  return messages;
}

}  // namespace clover::data
