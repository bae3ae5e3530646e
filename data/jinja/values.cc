#include "data/jinja/values.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "data/error.h"
#include "data/jinja/texts.h"

namespace clover::data::jinja {
namespace {

bool is_number(const json& value) {
  return value.is_number() || value.is_boolean();
}
bool is_whole(const json& value) {
  return value.is_number_integer() || value.is_boolean();
}
int64_t whole(const json& value) {
  return value.is_boolean() ? value.get<bool>() : value.get<int64_t>();
}
double real(const json& value) {
  return is_whole(value) ? static_cast<double>(whole(value)) : value.get<double>();
}

std::string text_of_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  char digits[64];
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  const auto end = std::to_chars(digits, digits + sizeof digits, value, format).ptr;
  std::string text(digits, end);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

/// repr(): texts in quotes.
std::string shown(const json& value) {
  if (!value.is_string()) return text_of(value);
  const std::string& text = value.get_ref<const std::string&>();
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string all(1, quote);
  for (const char c : text) {
    if (c == '\n' || c == '\t' || c == '\r') {
      all += c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r";
    } else {
      if (c == quote || c == '\\') all += '\\';
      all += c;
    }
  }
  return all + quote;
}

Value of_text(std::string text) {
  check_size(text);
  return made(json(std::move(text)));
}

Value times(const json& many, int64_t count) {
  count = std::max<int64_t>(count, 0);
  if (count > 0 && weight_of(many) > most_of_a_value / static_cast<size_t>(count))
    refuse("a value grows beyond 64 MiB");
  if (many.is_string()) {
    std::string all;
    for (int64_t i = 0; i < count; ++i) all += many.get_ref<const std::string&>();
    return of_text(std::move(all));
  }
  json all = json::array();
  for (int64_t i = 0; i < count; ++i) all.insert(all.end(), many.begin(), many.end());
  return made(std::move(all));
}

Value of_whole(const std::string& by, int64_t one, int64_t other) {
  int64_t result = 0;
  bool beyond = false;
  if (by == "+") {
    beyond = __builtin_add_overflow(one, other, &result);
  } else if (by == "-") {
    beyond = __builtin_sub_overflow(one, other, &result);
  } else if (by == "*") {
    beyond = __builtin_mul_overflow(one, other, &result);
  } else {
    if (other == 0) refuse("division by zero");
    beyond = other == -1 && one == INT64_MIN;
    if (!beyond) {
      const int64_t rest = one % other, floor = one / other - (rest != 0 && (rest < 0) != (other < 0));
      result = by == "%" ? one - floor * other : floor;
    }
  }
  if (beyond) refuse("a number grows beyond 64 bits");
  return made(result);
}

/// Where Python's slice begins and ends: `at` brought into [least, most].
int64_t bound(const json& at, int64_t length, int64_t fallback, int64_t least, int64_t most) {
  if (at.is_null()) return fallback;
  if (!is_whole(at)) refuse("a slice from or to " + type_of(at));
  const int64_t index = whole(at);
  return std::clamp(index < 0 ? std::max(index, -length - 1) + length : std::min(index, length), least, most);
}

thread_local int64_t spent = 0;

}  // namespace

void begin_spending() {
  spent = 0;
}
void spend(int64_t amount) {
  constexpr int64_t most = 20'000'000;  // seconds
  if ((spent += amount) > most) throw InputError("it does not come to an end");
}

Value made(json value) {
  return std::make_shared<const json>(std::move(value));
}

const Value& undefined() {
  static const Value value = made(json(json::value_t::discarded));
  return value;
}

size_t weight_of(const json& value, int depth) {
  constexpr int deepest = 100;
  if (depth > deepest) refuse("lists or dicts lie more than 100 deep within each other");
  if (value.is_string()) return value.get_ref<const std::string&>().size() + sizeof(json);
  size_t weight = sizeof(json);
  if (value.is_array())
    for (const json& item : value) weight += weight_of(item, depth + 1);
  if (value.is_object())
    for (const auto& item : value.items()) weight += weight_of(item.value(), depth + 1) + item.key().size();
  return weight;
}

Value made_of_parts(json value) {
  if (weight_of(value) > most_of_a_value) refuse("a value grows beyond 64 MiB");
  return made(std::move(value));
}

std::string type_of(const json& value) {
  if (value.is_discarded()) return "something undefined";
  if (value.is_null()) return "none";
  if (value.is_string()) return "a text";
  if (value.is_boolean()) return "true or false";
  if (value.is_number()) return "a number";
  return value.is_array() ? "a list" : "a dict";
}

bool is_true(const json& value) {
  if (value.is_discarded() || value.is_null()) return false;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  if (is_number(value)) return real(value) != 0;
  return !value.empty();
}

std::string text_of(const json& value) {
  if (value.is_discarded()) return "";
  if (value.is_null()) return "None";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_number_integer()) return std::to_string(value.get<int64_t>());
  if (value.is_number()) return text_of_number(value.get<double>());
  std::string all;
  for (const auto& item : value.items()) {
    if (!all.empty()) all += ", ";
    if (value.is_object()) all += shown(json(item.key())) + ": ";
    all += shown(item.value());
  }
  return value.is_array() ? "[" + all + "]" : "{" + all + "}";
}

std::string dumped(const json& value, const JsonStyle& style) {
  constexpr auto replace = json::error_handler_t::replace;
  if (value.is_discarded()) refuse("something undefined is written as JSON");
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::isnan(number)) return "NaN";
    return std::isinf(number) ? (number > 0 ? "Infinity" : "-Infinity") : text_of_number(number);
  }
  if (!value.is_structured()) return value.dump(-1, ' ', style.ascii, replace);
  if (value.empty()) return value.is_array() ? "[]" : "{}";
  const bool lines = style.indent >= 0;
  std::string between = style.between_items;
  if (lines && between == ", ") between = ",";
  std::string all;
  for (const auto& item : value.items()) {
    if (!all.empty()) all += between;
    if (lines) all += '\n';
    if (value.is_object()) all += json(item.key()).dump(-1, ' ', style.ascii, replace) + style.after_key;
    all += dumped(item.value(), style);
  }
  if (lines) {  // a line further in
    std::string moved;
    for (const char c : all) {
      moved += c;
      if (c == '\n') moved.append(std::min<int64_t>(style.indent, 16), ' ');
    }
    all = moved + '\n';
  }
  return value.is_array() ? "[" + all + "]" : "{" + all + "}";
}

bool equal(const json& one, const json& other) {
  if (one.is_discarded() || other.is_discarded()) return one.is_discarded() && other.is_discarded();
  if (is_number(one) && is_number(other)) return real(one) == real(other);
  return one == other;
}

bool compare(const std::string& by, const json& one, const json& other) {
  if (by == "==") return equal(one, other);
  if (by == "!=") return !equal(one, other);
  if (by == "not in") return !compare("in", one, other);
  if (by == "in") {
    if (other.is_string() && one.is_string())
      return other.get_ref<const std::string&>().find(one.get_ref<const std::string&>()) != std::string::npos;
    if (other.is_object()) return one.is_string() && other.contains(one.get<std::string>());
    if (other.is_discarded()) return false;
    if (!other.is_array()) refuse(type_of(one) + " is looked for in " + type_of(other));
    spend(static_cast<int64_t>(other.size()));
    return std::any_of(other.begin(), other.end(), [&](const json& item) { return equal(item, one); });
  }
  int order = 0;
  if (is_number(one) && is_number(other)) {
    order = (real(one) > real(other)) - (real(one) < real(other));
  } else if (one.is_string() && other.is_string()) {
    order = one.get_ref<const std::string&>().compare(other.get_ref<const std::string&>());
  } else {
    refuse(type_of(one) + " is compared with " + type_of(other));
  }
  return by == "<" ? order < 0 : by == "<=" ? order <= 0 : by == ">" ? order > 0 : order >= 0;
}

Value calculate(const std::string& by, const json& one, const json& other) {
  if (by == "+" && one.is_string() && other.is_string())
    return of_text(one.get_ref<const std::string&>() + other.get_ref<const std::string&>());
  if (by == "+" && one.is_array() && other.is_array()) {
    if (weight_of(one) + weight_of(other) > most_of_a_value) refuse("a list grows beyond 64 MiB");
    json all = one;
    all.insert(all.end(), other.begin(), other.end());
    return made(std::move(all));
  }
  const auto many = [](const json& value) { return value.is_string() || value.is_array(); };
  if (by == "*" && many(one) && is_whole(other)) return times(one, whole(other));
  if (by == "*" && many(other) && is_whole(one)) return times(other, whole(one));
  if (!is_number(one) || !is_number(other)) refuse(type_of(one) + " " + by + " " + type_of(other));
  if (is_whole(one) && is_whole(other) && by != "/" && by != "**")
    return of_whole(by, whole(one), whole(other));
  const double a = real(one), b = real(other);
  if (by == "**") {
    const double power = std::pow(a, b);
    if (is_whole(one) && is_whole(other) && b >= 0 && std::abs(power) < 9e15)
      return made(static_cast<int64_t>(power));
    return made(power);
  }
  if ((by == "/" || by == "//" || by == "%") && b == 0) refuse("division by zero");
  if (by == "/") return made(a / b);
  if (by == "//") return made(std::floor(a / b));
  if (by == "%") return made(a - std::floor(a / b) * b);
  return made(by == "+" ? a + b : by == "-" ? a - b : a * b);
}

int64_t length_of(const json& value) {
  if (value.is_string()) return std::ssize(characters_of(value.get_ref<const std::string&>()));
  if (value.is_structured()) return static_cast<int64_t>(value.size());
  if (value.is_discarded()) return 0;
  refuse("the length of " + type_of(value));
}

std::vector<Value> items_of(const Value& value) {
  constexpr size_t longest_text = 1 << 20;
  std::vector<Value> items;
  if (value->is_string() && value->get_ref<const std::string&>().size() > longest_text)
    refuse("the characters of a text of more than a megabyte");
  if (value->is_structured()) spend(static_cast<int64_t>(value->size()));
  if (value->is_array()) {
    for (const json& item : *value) items.emplace_back(value, &item);
  } else if (value->is_object()) {
    for (const auto& item : value->items()) items.push_back(made(item.key()));
  } else if (value->is_string()) {
    for (const std::string_view character : characters_of(value->get_ref<const std::string&>()))
      items.push_back(made(std::string(character)));
  } else if (!is_undefined(value)) {
    refuse(type_of(*value) + " has no items");
  }
  return items;
}

Value list_of(const std::vector<Value>& items) {
  json all = json::array();
  size_t weight = 0;
  for (const Value& item : items) {
    weight += weight_of(*item);
    if (weight > most_of_a_value) refuse("a list grows beyond 64 MiB");
    all.push_back(*item);
  }
  return made(std::move(all));
}

Value item_of(const Value& value, const json& key) {
  if (is_undefined(value)) refuse("a part of something undefined");
  if (value->is_object() && key.is_string()) {
    const auto found = value->find(key.get_ref<const std::string&>());
    return found == value->end() ? undefined() : Value(value, &*found);
  }
  if (!is_whole(key)) return undefined();
  if (value->is_array()) {
    const int64_t length = static_cast<int64_t>(value->size()),
                  at = whole(key) < 0 ? whole(key) + length : whole(key);
    return at < 0 || at >= length ? undefined() : Value(value, &(*value)[static_cast<size_t>(at)]);
  }
  if (!value->is_string()) return undefined();
  const auto characters = characters_of(value->get_ref<const std::string&>());
  const int64_t length = std::ssize(characters), at = whole(key) < 0 ? whole(key) + length : whole(key);
  return at < 0 || at >= length ? undefined() : made(std::string(characters[at]));
}

Value slice_of(const Value& value, const json& begin, const json& end, const json& step) {
  if (!value->is_string() && !value->is_array()) refuse("a slice of " + type_of(*value));
  if (!step.is_null() && (!is_whole(step) || whole(step) == 0))
    refuse("a slice with a step of " + text_of(step));
  const int64_t by = step.is_null() ? 1 : whole(step), length = length_of(*value);
  const bool up = by > 0;
  const int64_t least = up ? 0 : -1, most = up ? length : length - 1;
  const int64_t first = bound(begin, length, up ? 0 : length - 1, least, most);
  const int64_t last = bound(end, length, up ? length : -1, least, most);
  const std::vector<Value> items = items_of(value);
  std::vector<Value> kept;
  for (int64_t i = first; up ? i < last : i > last;) {
    kept.push_back(items[i]);
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  if (value->is_array()) return list_of(kept);
  std::string text;
  for (const Value& character : kept) text += character->get_ref<const std::string&>();
  return made(std::move(text));
}

}  // namespace clover::data::jinja
