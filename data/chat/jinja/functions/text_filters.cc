#include <algorithm>

#include "data/chat/jinja/functions/filters.h"
#include "data/chat/jinja/functions/functions.h"
#include "data/chat/jinja/values/formatting.h"
#include "data/chat/jinja/values/printing.h"
#include "data/chat/jinja/values/texts.h"
#include "data/chat/jinja/values/wrapping.h"

// Filters that return a text.
namespace clover::data::jinja {
namespace {

/// A filter that calls a method of str.
Value call_text_method(const char* name, const Value& value, Arguments arguments) {
  return call_method(soft_str(value), name, arguments);
}

Value indented(const Value& value, const BoundArguments& bound) {
  const std::string& text = text_in(value);
  const std::string indent = bound.is_given(0) && bound.at(0).is_text()
                                 ? bound.at(0).text()
                                 : padded("", bound.integer(0, 4), " ", -1);
  const bool indent_blank = bound.boolean(2);
  std::string result = bound.boolean(1) ? indent : "";
  bool first = true;
  for (const std::string& line : splitlines(text + "\n", false)) {
    if (!first) result += '\n';
    if (!first && (indent_blank || !line.empty())) result += indent;
    first = false;
    result += line;
    check_size(result);
  }
  return text_or_markup(std::move(result), value.is_markup());
}

/// tojson as in Hugging Face: json.dumps without escaping for HTML.
Value as_json(const Value& value, const BoundArguments& bound) {
  JsonStyle style{.ensure_ascii = bound.boolean(0), .sort_keys = bound.boolean(3)};
  if (!bound.is_absent(1)) {
    style.item_per_line = true;
    style.indent = bound.at(1).is_text() ? bound.at(1).text() : padded("", bound.integer(1, 0), " ", -1);
    style.between_items = ",";
  }
  if (!bound.is_absent(2)) {
    const std::vector<Value> separators = items_of(bound.at(2));
    if (separators.size() != 2)
      throw_error("expected two separators, found " + std::to_string(separators.size()));
    style.between_items = text_in(separators[0]);
    style.after_key = text_in(separators[1]);
  }
  return Value::of(json_dumps(value, style));
}

Value truncated(const Value& value, const BoundArguments& bound) {
  const std::string end = bound.text(2, "...");
  const int64_t length = bound.integer(0, 255), leeway = bound.is_absent(3) ? 5 : bound.integer(3, 5);
  const int64_t kept_length = length - count_characters(end);
  if (kept_length < 0 || leeway < 0) throw_error("a text is cut to less than its end");
  if (length_of(value) <= length + leeway) return value;
  const std::string& text = text_in(value);
  const std::vector<size_t> starts = character_starts(text);
  std::string head = text.substr(0, starts[static_cast<size_t>(kept_length)]);
  if (!bound.boolean(1)) head = split_from_right(head, " ", 1)[0];
  return text_or_markup(head + (value.is_markup() ? escaped(Value::of(end)) : end), value.is_markup());
}

std::string url_quoted(const std::string& text, bool query) {
  std::string result;
  for (const char c : text) {
    const bool is_unreserved = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                               std::string_view("_.-~").find(c) != std::string_view::npos ||
                               (c == '/' && !query);
    if (is_unreserved) {
      result += c;
    } else if (c == ' ' && query) {
      result += '+';
    } else {
      const auto byte = static_cast<unsigned char>(c);
      result += '%';
      result += "0123456789ABCDEF"[byte >> 4];
      result += "0123456789ABCDEF"[byte & 15];
    }
  }
  check_size(result);
  return result;
}

Value url_encoded(const Value& value, const BoundArguments&) {
  if (value.is_text() || !has_items(value)) return Value::of(url_quoted(to_str(value), false));
  std::string result;
  for (const Value& pair : items_of(value.is_dict() ? call_method(value, "items", {}) : value)) {
    const std::vector<Value> parts = items_of(pair);
    if (parts.size() != 2) throw_error("expected pairs");
    if (!result.empty()) result += '&';
    result += url_quoted(to_str(parts[0]), true) + "=" + url_quoted(to_str(parts[1]), true);
    check_size(result);
  }
  return Value::of(result);
}

Value as_attributes(const Value& value, const BoundArguments& bound) {
  if (!value.is_dict()) throw_error("expected a dict, found " + type_of(value));
  std::string result;
  for (const auto& [key, item] : value.dict().items) {
    if (item.is_none() || item.is_undefined()) continue;
    if (text_in(key).find_first_of(" \t\n\r\f\v/>=") != std::string::npos)
      throw_error("a key that is no name of an attribute");
    if (!result.empty()) result += ' ';
    result += escaped(key) + "=\"" + escaped(item) + "\"";
    check_size(result);
  }
  return Value::of((bound.boolean(0, true) && !result.empty() ? " " : "") + result);
}

/// Replaces the five entities of HTML by their characters.
std::string unescaped(std::string text) {
  static constexpr const char* pairs[][2] = {{"&lt;", "<"},   {"&gt;", ">"},    {"&#39;", "'"},
                                             {"&#34;", "\""}, {"&quot;", "\""}, {"&amp;", "&"}};
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const char* character = nullptr;
    for (const auto& [from, to] : pairs)
      if (character == nullptr && text.compare(at, std::string_view(from).size(), from) == 0)
        character = to, at += std::string_view(from).size();
    if (character == nullptr && text[at] == '&' && at + 1 < text.size() &&
        (text[at + 1] == '#' || (text[at + 1] | 32) >= 'a'))
      throw_unsupported("striptags of other entities than the five of HTML");
    character != nullptr ? void(result += character) : void(result += text[at++]);
  }
  return result;
}

Value without_tags(const Value& value, const BoundArguments&) {
  std::string text = to_str(value);
  const auto remove_between = [&](std::string_view open, std::string_view close) {
    size_t begin = 0;
    std::string result;
    for (size_t at = 0;;) {
      begin = find_linear(text, open, at);
      const size_t end = begin == std::string::npos ? begin : find_linear(text, close, begin + open.size());
      result.append(text, at, end == std::string::npos ? end : begin - at);
      if (end == std::string::npos) break;
      at = end + close.size();
    }
    text = std::move(result);
  };
  remove_between("<!--", "-->");
  remove_between("<", ">");
  std::string result;
  for (const std::string& word : split_at_whitespace(text, -1)) result += (result.empty() ? "" : " ") + word;
  return Value::of(unescaped(result));
}

Value formatted_filter(const Value& value, const BoundArguments& bound) {
  if (!bound.varargs().empty() && !bound.kwargs().empty())
    throw_error("a format takes values or named ones, not both");
  if (bound.kwargs().empty()) return percent_format(soft_str(value), Value::tuple(bound.varargs()));
  Dict keywords;
  for (const auto& [name, item] : bound.kwargs()) keywords.set(Value::of(name), item);
  return percent_format(soft_str(value), Value::of(std::move(keywords)));
}

Value replaced_filter(const Value& value, const BoundArguments& bound) {
  const int64_t max_count = bound.is_absent(2) ? -1 : bound.integer(2, -1);
  return Value::of(replaced(to_str(value), to_str(bound.at(0)), to_str(bound.at(1)), max_count));
}

Value joined_filter(const Value& value, const BoundArguments& bound) {
  const std::string separator = bound.is_given(0) ? to_str(bound.at(0)) : "";
  std::string result;
  bool first = true;
  Items items(value);
  while (const std::optional<Value> item = items.next()) {
    if (!first) result += separator;
    first = false;
    result += to_str(bound.is_absent(1) ? *item : attribute_at_path(*item, bound.at(1)));
    check_size(result);
  }
  return Value::of(std::move(result));
}

Value wrapped_filter(const Value& value, const BoundArguments& bound) {
  const std::string line_separator = bound.is_absent(2) ? "\n" : bound.text(2);
  std::string result;
  bool first = true;
  for (const std::string& line : splitlines(text_in(value), false)) {
    if (!first) result += line_separator;
    first = false;
    bool first_part = true;
    for (const std::string& part :
         wrapped(line, bound.integer(0, 79), bound.boolean(1, true), bound.boolean(3, true))) {
      if (!first_part) result += line_separator;
      first_part = false;
      result += part;
      check_size(result);
    }
  }
  return Value::of(std::move(result));
}

}  // namespace

const Callables& text_filters() {
  static const Callables filters{
      {"upper", {"", [](const Value& v, const BoundArguments&) { return call_text_method("upper", v, {}); }}},
      {"lower", {"", [](const Value& v, const BoundArguments&) { return call_text_method("lower", v, {}); }}},
      {"capitalize",
       {"", [](const Value& v, const BoundArguments&) { return call_text_method("capitalize", v, {}); }}},
      {"title",
       {"", [](const Value& v, const BoundArguments&) { return Value::of(jinja_title(to_str(v))); }}},
      {"trim",
       {"chars=",
        [](const Value& v, const BoundArguments& b) {
          return call_text_method("strip", v, b.is_given(0) ? Arguments{{b.at(0)}, {}} : Arguments{});
        }}},
      {"center",
       {"width=",
        [](const Value& v, const BoundArguments& b) {
          return call_text_method("center", v, {{b.is_given(0) ? b.at(0) : Value::of(Integer{80})}, {}});
        }}},
      {"escape", {"", [](const Value& v, const BoundArguments&) { return Value::markup(escaped(v)); }}},
      {"e", {"", [](const Value& v, const BoundArguments&) { return Value::markup(escaped(v)); }}},
      {"forceescape",
       {"",
        [](const Value& v, const BoundArguments&) { return Value::markup(escaped(Value::of(to_str(v)))); }}},
      {"safe", {"", [](const Value& v, const BoundArguments&) { return Value::markup(to_str(v)); }}},
      {"string", {"", [](const Value& v, const BoundArguments&) { return soft_str(v); }}},
      {"replace", {"old new count=", replaced_filter}},
      {"indent", {"width= first= blank=", indented}},
      {"tojson", {"ensure_ascii= indent= separators= sort_keys=", as_json}},
      {"truncate", {"length= killwords= end= leeway=", truncated}},
      {"urlencode", {"", url_encoded}},
      {"xmlattr", {"autospace=", as_attributes}},
      {"striptags", {"", without_tags}},
      {"format", {"* **", formatted_filter}},
      {"join", {"d= attribute=", joined_filter}},
      {"wordcount",
       {"",
        [](const Value& v, const BoundArguments&) { return Value::of(Integer{count_words(to_str(v))}); }}},
      {"wordwrap", {"width= break_long_words= wrapstring= break_on_hyphens=", wrapped_filter}},
  };
  return filters;
}

}  // namespace clover::data::jinja
