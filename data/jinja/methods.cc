#include <algorithm>
#include <map>
#include <string_view>

#include "data/error.h"
#include "data/jinja/functions.h"
#include "data/jinja/texts.h"

// Tests, methods of texts and dicts, and what they share with filters.
namespace clover::data::jinja {
namespace {

Value list_of_texts(const std::vector<std::string>& texts) {
  return made(json(texts));
}

Value split(const std::string& text, const Arguments& arguments) {
  const Value& by = arguments.at(0, "sep");
  const int64_t most = whole_or(arguments.at(1, "maxsplit"), -1);
  if (is_undefined(by) || by->is_null()) return list_of_texts(split_at_whitespace(text, most));
  return list_of_texts(split_at(text, text_in(*by), most));
}

Value lines_of(const std::string& text) {
  if (text.empty()) return made(json::array());
  const std::string lines = replaced(text, "\r\n", "\n", -1);
  return list_of_texts(split_at(lines.ends_with('\n') ? lines.substr(0, lines.size() - 1) : lines, "\n", -1));
}

bool is_at_edge(const std::string& text, const json& edge, bool front) {
  if (edge.is_array())
    return std::any_of(edge.begin(), edge.end(),
                       [&](const json& one) { return is_at_edge(text, one, front); });
  return front ? text.starts_with(text_in(edge)) : text.ends_with(text_in(edge));
}

int64_t remainder(const Value& value, int64_t by) {
  if (by == 0) refuse("division by zero");
  return calculate("%", json(whole_or(value, 0)), json(by))->get<int64_t>();
}

bool is_of_type(const std::string& name, const json& value, bool& known) {
  if (name == "string") return value.is_string();
  if (name == "mapping") return value.is_object();
  if (name == "number") return value.is_number() || value.is_boolean();
  if (name == "integer") return value.is_number_integer();
  if (name == "float") return value.is_number_float();
  if (name == "boolean") return value.is_boolean();
  if (name == "none") return value.is_null();
  if (name == "true") return value == json(true);
  if (name == "false") return value == json(false);
  if (name == "iterable") return value.is_structured() || value.is_string() || value.is_discarded();
  if (name == "sequence") return value.is_structured() || value.is_string() || value.is_discarded();
  if (name == "defined") return !value.is_discarded();
  if (name == "undefined") return value.is_discarded();
  known = false;
  return false;
}

Value call_of_dict(const std::string& name, const Value& dict, const Arguments& arguments) {
  if (name == "items") return pairs_of(dict);
  if (name == "keys") return list_of(items_of(dict));
  if (name == "values") {
    json all = json::array();
    for (const auto& item : dict->items()) all.push_back(item.value());
    return made(std::move(all));
  }
  if (name == "get") {
    const Value found = item_of(dict, *arguments.at(0, "key"));
    if (!is_undefined(found)) return found;
    return is_undefined(arguments.at(1, "default")) ? made(nullptr) : arguments.at(1, "default");
  }
  lack("the method \"" + name + "\" of a dict");
}

}  // namespace

const Value& Arguments::at(size_t index, const char* name) const {
  if (index < values.size()) return values[index];
  for (const auto& [own, value] : named)
    if (own == name) return value;
  return undefined();
}

const std::string& text_in(const json& value) {
  if (!value.is_string()) refuse("expected a text, found " + type_of(value));
  return value.get_ref<const std::string&>();
}

int64_t whole_or(const Value& value, int64_t fallback) {
  if (is_undefined(value) || value->is_null()) return fallback;
  if (!value->is_number_integer()) refuse("expected a whole number, found " + type_of(*value));
  return value->get<int64_t>();
}

std::string joined(const Value& list, const std::string& separator, const Value& attribute) {
  std::string all;
  bool first = true;
  for (const Value& item : items_of(list)) {
    if (!first) all += separator;
    first = false;
    all += text_of(is_undefined(attribute) ? *item : *item_of(item, *attribute));
    check_size(all);
  }
  return all;
}

Value pairs_of(const Value& dict) {
  if (is_undefined(dict)) return made(json::array());
  if (!dict->is_object()) refuse("the items of " + type_of(*dict));
  json all = json::array();
  for (const auto& item : dict->items()) all.push_back(json::array({item.key(), item.value()}));
  return made(std::move(all));
}

std::string with_replaced(const std::string& text, const Arguments& arguments) {
  return replaced(text, text_in(*arguments.at(0, "old")), text_in(*arguments.at(1, "new")),
                  whole_or(arguments.at(2, "count"), -1));
}

bool apply_test(const std::string& name, const Value& value, const Arguments& arguments) {
  bool known = true;
  const bool is = is_of_type(name, *value, known);
  if (known) return is;
  static const std::map<std::string, const char*> comparisons{
      {"equalto", "=="}, {"eq", "=="}, {"==", "=="}, {"ne", "!="},        {"!=", "!="},
      {"lt", "<"},       {"le", "<="}, {"gt", ">"},  {"ge", ">="},        {"in", "in"},
      {"lessthan", "<"}, {"<", "<"},   {">", ">"},   {"greaterthan", ">"}};
  if (const auto found = comparisons.find(name); found != comparisons.end())
    return compare(found->second, *value, *arguments.at(0));
  if (name == "odd") return remainder(value, 2) == 1;
  if (name == "even") return remainder(value, 2) == 0;
  if (name == "divisibleby") return remainder(value, whole_or(arguments.at(0), 0)) == 0;
  if (name == "upper") return text_of(*value) == in_upper(text_of(*value));
  if (name == "lower") return text_of(*value) == in_lower(text_of(*value));
  lack("the test \"" + name + "\"");
}

Value call_method(const std::string& name, const Value& value, const Arguments& arguments) {
  if (value->is_object()) return call_of_dict(name, value, arguments);
  if (!value->is_string()) lack("the method \"" + name + "\" of " + type_of(*value));
  const std::string& text = value->get_ref<const std::string&>();
  const Value& first = arguments.at(0);
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const std::string* these = first->is_string() ? &first->get_ref<const std::string&>() : nullptr;
    return made(std::string(stripped(text, name != "rstrip", name != "lstrip", these)));
  }
  if (name == "split") return split(text, arguments);
  if (name == "splitlines") return lines_of(text);
  if (name == "startswith") return made(is_at_edge(text, *first, true));
  if (name == "endswith") return made(is_at_edge(text, *first, false));
  if (name == "replace") return made(with_replaced(text, arguments));
  if (name == "upper") return made(in_upper(text));
  if (name == "lower") return made(in_lower(text));
  if (name == "title") return made(titled(text));
  if (name == "capitalize") return made(capitalized(text));
  if (name == "removeprefix" || name == "removesuffix") {
    const bool front = name == "removeprefix";
    const std::string& part = text_in(*first);
    if (!(front ? text.starts_with(part) : text.ends_with(part))) return value;
    return made(front ? text.substr(part.size()) : text.substr(0, text.size() - part.size()));
  }
  if (name == "join") return made(joined(first, text, undefined()));
  if (name == "count") {
    int64_t count = 0;
    const std::string& part = text_in(*first);
    for (size_t at = text.find(part); !part.empty() && at != std::string::npos;
         at = text.find(part, at + part.size()))
      ++count;
    return made(count);
  }
  if (name == "find") {
    const size_t at = text.find(text_in(*first));
    return made(at == std::string::npos ? -1
                                        : std::ssize(characters_of(std::string_view(text).substr(0, at))));
  }
  lack("the method \"" + name + "\" of a text");
}

}  // namespace clover::data::jinja
