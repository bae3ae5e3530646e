#include <algorithm>
#include <array>
#include <cmath>

#include "data/chat/jinja/functions/filters.h"
#include "data/chat/jinja/functions/functions.h"
#include "data/chat/jinja/functions/global_functions.h"
#include "data/chat/jinja/values/formatting.h"
#include "data/chat/jinja/values/texts.h"

// Attributes and methods of values, as Python's types have them.
namespace clover::data::jinja {
namespace {

using Kind = Value::Kind;

template <size_t Count>
bool is_one_of(const std::string& name, const std::array<const char*, Count>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Methods of str that tell of which kind all characters are.
constexpr std::array character_methods{"isalpha",   "isalnum",      "isascii", "isdecimal",
                                       "isdigit",   "isidentifier", "islower", "isupper",
                                       "isnumeric", "isprintable",  "isspace", "istitle"};
/// Methods of str that we do not support.
constexpr std::array unsupported_text_methods{"encode", "translate", "maketrans"};
constexpr std::array markup_methods{"unescape", "striptags", "escape"};
// Methods that the immutable sandbox hides, since they change their value.
constexpr std::array mutating_dict_methods{"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::array mutating_list_methods{"append", "clear", "pop",    "reverse",
                                           "insert", "sort",  "extend", "remove"};

bool is_text_method(const Value& text, const std::string& name) {
  return text_methods().contains(name) || is_one_of(name, character_methods) ||
         is_one_of(name, unsupported_text_methods) || name == "format" || name == "format_map" ||
         (text.is_markup() && is_one_of(name, markup_methods));
}

Value call_text_method(const Value& text, const std::string& name, const Arguments& arguments) {
  if (name == "format") return str_format(text, arguments);
  if (name == "format_map") {
    const BoundArguments bound("/ values", "format_map()", arguments);
    if (!bound.at(0).is_dict()) throw_error("format_map of " + type_of(bound.at(0)));
    Arguments keyword_arguments;
    for (const auto& [key, value] : bound.at(0).dict().items)
      if (key.is_text()) keyword_arguments.keywords.emplace_back(key.text(), value);
    return str_format(text, keyword_arguments);
  }
  if (is_one_of(name, character_methods)) {
    const BoundArguments bound("", name + "()", arguments);
    return Value::of(is_of_kind(name, text.text()));
  }
  const auto found = text_methods().find(name);
  if (found == text_methods().end()) throw_unsupported("the method \"" + name + "\" of a text");
  return found->second.compute(text, BoundArguments(found->second.parameters, name + "()", arguments));
}

Value view_of(const Value& dict, const std::string& name) {
  std::vector<Value> parts;
  for (const auto& [key, value] : dict.dict().items)
    parts.push_back(name == "items" ? Value::tuple({key, value}) : name == "keys" ? key : value);
  return Value::of(std::make_shared<View>("dict_" + name, std::move(parts)));
}

Value call_dict_method(const Value& dict, const std::string& name, const Arguments& arguments) {
  if (name == "get") {
    const BoundArguments bound("/ key default=", "get()", arguments);
    const Value* found = dict.dict().find(bound.at(0));
    return found != nullptr ? *found : bound.is_given(1) ? bound.at(1) : Value::none();
  }
  if (name == "fromkeys") return new_dict_of_keys(arguments);
  const BoundArguments bound("", name + "()", arguments);
  return name == "copy" ? dict : view_of(dict, name);
}

Value call_list_method(const Value& list, const std::string& name, const Arguments& arguments) {
  if (name == "copy") {
    const BoundArguments bound("", "copy()", arguments);
    return list;
  }
  const bool index = name == "index";
  const BoundArguments bound(index ? "/ value start= end=" : "/ value", name + "()", arguments);
  const std::vector<Value> items = items_of(list);
  int64_t count = 0;
  const auto index_argument = [&](size_t at, int64_t fallback) {
    const int64_t given = bound.integer(at, fallback);
    return given < 0 ? std::max<int64_t>(given + std::ssize(items), 0) : given;
  };
  const int64_t begin = index ? index_argument(1, 0) : 0,
                end = index ? index_argument(2, std::ssize(items)) : std::ssize(items);
  for (int64_t i = begin; i < std::min<int64_t>(end, std::ssize(items)); ++i) {
    if (!equal(items[static_cast<size_t>(i)], bound.at(0))) continue;
    if (index) return Value::of(Integer{i});
    ++count;
  }
  if (index) throw_error("a value is not found in " + type_of(list));
  return Value::of(Integer{count});
}

Value call_number_method(const Value& number, const std::string& name, const Arguments& arguments) {
  const BoundArguments bound("", name + "()", arguments);
  if (name == "conjugate") return number;
  if (name == "is_integer")
    return Value::of(std::isfinite(number.real()) && std::floor(number.real()) == number.real());
  Integer magnitude = number.integer() < 0 ? -number.integer() : number.integer();
  int64_t length = 0, one_bits = 0;
  for (; magnitude > 0; magnitude /= 2, ++length) one_bits += static_cast<int64_t>(magnitude % 2);
  return Value::of(Integer{name == "bit_length" ? length : one_bits});
}

std::optional<Value> number_attribute(const Value& number, const std::string& name) {
  if (name == "real") return number.kind() == Kind::real ? number : Value::of(number.integer());
  if (name == "imag") return number.kind() == Kind::real ? Value::of(0.0) : Value::of(Integer{0});
  if (!number.is_integral()) return std::nullopt;
  if (name == "numerator") return Value::of(number.integer());
  if (name == "denominator") return Value::of(Integer{1});
  return std::nullopt;
}

}  // namespace

bool has_method(const Value& value, const std::string& name) {
  switch (value.kind()) {
    case Kind::text:
      return is_text_method(value, name);
    case Kind::dict:
      return name == "get" || name == "items" || name == "keys" || name == "values" || name == "copy" ||
             name == "fromkeys";
    case Kind::list:
      return name == "index" || name == "count" || name == "copy";
    case Kind::tuple:
      return name == "index" || name == "count";
    case Kind::boolean:
    case Kind::integer:
      return name == "bit_length" || name == "bit_count" || name == "conjugate";
    case Kind::real:
      return name == "is_integer" || name == "conjugate";
    case Kind::object:
      return value.as<Range>() && (name == "index" || name == "count");
    default:
      return false;
  }
}

Value call_method(const Value& value, const std::string& name, const Arguments& arguments) {
  if (value.is_text()) return call_text_method(value, name, arguments);
  if (value.is_dict()) return call_dict_method(value, name, arguments);
  if (value.is_number()) return call_number_method(value, name, arguments);
  if (value.is_sequence() || value.as<Range>()) return call_list_method(value, name, arguments);
  if (const auto cycler = value.as<Cycler>()) {
    const BoundArguments bound("", name + "()", arguments);
    return cycler->advance_or_reset(name == "reset");
  }
  if (const auto function = value.as<Function>(); function && name == "fromkeys")
    return new_dict_of_keys(arguments);
  throw_unsupported("the method \"" + name + "\" of " + type_of(value));
}

std::optional<Value> get_attribute(const Value& value, const std::string& name) {
  if (value.is_undefined()) throw_error("a part of something undefined");
  if (value.kind() == Kind::object) {
    if (std::optional<Value> found = value.object()->attribute(name)) return found;
    const bool is_object_method =
        (value.as<Cycler>() && (name == "next" || name == "reset")) ||
        (value.object()->type() == "function" && name == "fromkeys" && value.as<Function>()->name == "dict");
    if (is_object_method || has_method(value, name)) return Value::of(std::make_shared<Method>(value, name));
    return std::nullopt;
  }
  if (has_method(value, name)) return Value::of(std::make_shared<Method>(value, name));
  if (value.is_number()) return number_attribute(value, name);
  if (value.is_group() && (name == "grouper" || name == "list")) return value.items()[name == "list"];
  const bool is_hidden = (value.is_dict() && is_one_of(name, mutating_dict_methods)) ||
                         (value.kind() == Kind::list && is_one_of(name, mutating_list_methods));
  return is_hidden ? std::optional<Value>(Value()) : std::nullopt;
}

}  // namespace clover::data::jinja
