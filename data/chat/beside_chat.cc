#include "data/chat/beside_chat.h"

#include <algorithm>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/json_fields.h"

namespace clover::data {
namespace {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;

constexpr const char* system_names[] = {"system", "system_prompt", "system_message"};

/// A list that stands as it is or, as tables of one type have it, as a text of JSON.
Ordered list_of_objects(const Json& record, const char* key, OrderedLine& line) {
  Ordered list;
  if (record[key].is_string()) {
    const std::string& text = record[key].get_ref<const std::string&>();
    parse_json(text, key);  // strict, and not too deep
    list = Ordered::parse(text);
  } else {
    list = line.at(std::string("/") + key);
  }
  if (!list.is_array()) fail_expected(key, "a list of objects", kind_of(Json(list)));
  for (size_t i = 0; i < list.size(); ++i)
    if (!list[i].is_object()) fail_expected(element(key, i), "an object", kind_of(Json(list[i])));
  return list;
}

std::string system_of(const Json& record) {
  std::string system;
  const char* found = nullptr;
  for (const char* name : system_names) {
    if (says_nothing(record, name)) continue;
    const std::string said = as_content(record[name], name);
    if (found != nullptr && said != system)
      throw InputError(std::string(name) + ": expected none beside \"" + found + "\", found another text");
    system = said;
    found = name;
  }
  return system;
}

void put_named(Ordered& arguments, const Ordered& named) {
  for (const auto& [name, value] : named.items()) {
    for (const char* taken :
         {"messages", "add_generation_prompt", "continue_final_message", "chat_template"}) {
      if (name == taken)
        throw InputError("chat_template_kwargs: expected none of the name \"" + name + "\", found one");
    }
    if (arguments.contains(name))
      throw InputError("chat_template_kwargs: expected \"" + name + "\" once, found it beside them, too");
    arguments[name] = value;
  }
}

void refuse(const Json& record, std::initializer_list<const char*> names, const std::string& form) {
  for (const char* name : names) {
    if (!says_nothing(record, name)) {
      throw InputError(std::string(name) + ": expected none beside " + form +
                       ", which is read as it stands, found " + kind_of(record[name]) +
                       "; say it there, or leave it out");
    }
  }
}

}  // namespace

bool says_nothing(const Json& record, const char* key) {
  const auto found = record.find(key);
  if (found == record.end() || found->is_null()) return true;
  if (found->is_string()) return *found == "" || *found == "[]" || *found == "{}";
  return found->is_structured() && found->empty();
}

void put_beside(const Json& record, OrderedLine& line, std::vector<Message>& messages,
                TemplateArguments& arguments) {
  const std::string system = system_of(record);
  const bool said =
      !messages.empty() && messages.front().role == "system" && messages.front().content == system;
  if (!system.empty() && !said) messages.insert(messages.begin(), {"system", system});

  Ordered named = Ordered::object();
  if (!says_nothing(record, "tools")) named["tools"] = list_of_objects(record, "tools", line);
  if (!says_nothing(record, "functions")) {
    if (named.contains("tools")) throw InputError("functions: expected none beside \"tools\", found some");
    const Ordered functions = list_of_objects(record, "functions", line);
    for (const Ordered& function : functions)
      named["tools"].push_back({{"type", "function"}, {"function", function}});
  }
  if (!says_nothing(record, "documents")) named["documents"] = list_of_objects(record, "documents", line);
  if (!says_nothing(record, "chat_template_kwargs")) {
    const Json& more = record["chat_template_kwargs"];
    if (!more.is_object()) fail_expected("chat_template_kwargs", "an object", kind_of(more));
    put_named(named, line.at("/chat_template_kwargs"));
  }
  if (!named.empty()) arguments = std::make_shared<const Ordered>(std::move(named));
}

void refuse_beside_text(const Json& record, const std::string& form) {
  refuse(record,
         {"system", "system_prompt", "system_message", "tools", "functions", "documents",
          "chat_template_kwargs", "history", "context"},
         form);
}

void refuse_beside_messages(const Json& record, const std::string& form) {
  refuse(record, {"history", "context"}, form);
}

}  // namespace clover::data
