#include "data/chat/chat_fields.h"

#include <algorithm>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/json_fields.h"

namespace clover::data {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* system_names[] = {"system", "system_prompt", "system_message"};

/// A list of objects, given as JSON or as a string that holds JSON, as in data sets with string columns only.
OrderedJson list_of_objects(const Json& record, const char* key, OrderedJsonLine& line) {
  OrderedJson list;
  if (record[key].is_string()) {
    const std::string& text = record[key].get_ref<const std::string&>();
    parse_json(text, key);  // checks syntax, duplicate keys and depth
    list = OrderedJson::parse(text);
  } else {
    list = line.at(std::string("/") + key);
  }
  if (!list.is_array()) fail_expected(key, "a list of objects", json_type_name(Json(list)));
  for (size_t i = 0; i < list.size(); ++i)
    if (!list[i].is_object()) fail_expected(element_path(key, i), "an object", json_type_name(Json(list[i])));
  return list;
}

std::string read_system_message(const Json& record) {
  std::string system;
  const char* found_name = nullptr;
  for (const char* name : system_names) {
    if (is_blank_field(record, name)) continue;
    const std::string content = read_content(record[name], name);
    if (found_name != nullptr && content != system)
      throw InputError(std::string(name) + ": expected none beside \"" + found_name +
                       "\", found another text");
    system = content;
    found_name = name;
  }
  return system;
}

void add_template_kwargs(OrderedJson& arguments, const OrderedJson& kwargs) {
  for (const auto& [name, value] : kwargs.items()) {
    for (const char* reserved :
         {"messages", "add_generation_prompt", "continue_final_message", "chat_template"}) {
      if (name == reserved)
        throw InputError("chat_template_kwargs: expected none of the name \"" + name + "\", found one");
    }
    if (arguments.contains(name))
      throw InputError("chat_template_kwargs: expected \"" + name + "\" once, found it beside them, too");
    arguments[name] = value;
  }
}

void refuse(const Json& record, std::initializer_list<const char*> names, const std::string& form) {
  for (const char* name : names) {
    if (!is_blank_field(record, name)) {
      throw InputError(std::string(name) + ": expected none beside " + form +
                       ", which is read as it stands, found " + json_type_name(record[name]) +
                       "; say it there, or leave it out");
    }
  }
}

}  // namespace

bool is_blank_field(const Json& record, const char* key) {
  const auto found = record.find(key);
  if (found == record.end() || found->is_null()) return true;
  if (found->is_string()) return *found == "" || *found == "[]" || *found == "{}";
  return found->is_structured() && found->empty();
}

void read_chat_fields(const Json& record, OrderedJsonLine& line, std::vector<Message>& messages,
                      TemplateArguments& arguments) {
  const std::string system = read_system_message(record);
  const bool is_first_already =
      !messages.empty() && messages.front().role == "system" && messages.front().content == system;
  if (!system.empty() && !is_first_already) messages.insert(messages.begin(), {"system", system});

  OrderedJson template_arguments = OrderedJson::object();
  if (!is_blank_field(record, "tools")) template_arguments["tools"] = list_of_objects(record, "tools", line);
  if (!is_blank_field(record, "functions")) {
    if (template_arguments.contains("tools"))
      throw InputError("functions: expected none beside \"tools\", found some");
    const OrderedJson functions = list_of_objects(record, "functions", line);
    for (const OrderedJson& function : functions)
      template_arguments["tools"].push_back({{"type", "function"}, {"function", function}});
  }
  if (!is_blank_field(record, "documents"))
    template_arguments["documents"] = list_of_objects(record, "documents", line);
  if (!is_blank_field(record, "chat_template_kwargs")) {
    const Json& kwargs = record["chat_template_kwargs"];
    if (!kwargs.is_object()) fail_expected("chat_template_kwargs", "an object", json_type_name(kwargs));
    add_template_kwargs(template_arguments, line.at("/chat_template_kwargs"));
  }
  if (!template_arguments.empty())
    arguments = std::make_shared<const OrderedJson>(std::move(template_arguments));
}

void refuse_chat_fields(const Json& record, const std::string& form) {
  refuse(record,
         {"system", "system_prompt", "system_message", "tools", "functions", "documents",
          "chat_template_kwargs", "history", "context"},
         form);
}

void refuse_question_fields(const Json& record, const std::string& form) {
  refuse(record, {"history", "context"}, form);
}

}  // namespace clover::data
