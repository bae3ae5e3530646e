#include "data/chat/jinja/values/printing.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "data/chat/jinja/values/operators.h"
#include "data/chat/jinja/values/texts.h"
#include "data/text/utf8.h"

namespace clover::data::jinja {
namespace {

using Kind = Value::Kind;

std::string repr_text(const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string result(1, quote);
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    const char32_t c = step.code_point;
    if (c == U'\n' || c == U'\t' || c == U'\r') {
      result += c == U'\n' ? "\\n" : c == U'\t' ? "\\t" : "\\r";
    } else if (c == static_cast<unsigned char>(quote) || c == U'\\') {
      result += '\\';
      result += static_cast<char>(c);
    } else if (is_printable(c)) {
      result += text.substr(at, step.length);
    } else {
      char escape[16];
      const char* pattern = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
      std::snprintf(escape, sizeof escape, pattern, static_cast<unsigned>(c));
      result += escape;
    }
    at += step.length;
  }
  check_size(result);
  return result + quote;
}

std::string repr_items(const std::vector<Value>& items) {
  std::string result;
  for (const Value& item : items) {
    if (!result.empty()) result += ", ";
    result += repr(item);
    check_size(result);
  }
  return result;
}

/// A text as a JSON string.
std::string quoted(const std::string& text, bool ascii) {
  std::string result = "\"";
  const auto escape = [&](unsigned unit) {
    char hex[16];
    std::snprintf(hex, sizeof hex, "\\u%04x", unit);
    result += hex;
  };
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    const char32_t c = step.code_point;
    constexpr std::string_view special = "\"\\\n\r\t\f\b", letters = "\"\\nrtfb";
    const size_t found = c < 0x80 ? special.find(static_cast<char>(c)) : std::string_view::npos;
    if (found != std::string_view::npos) {
      result += '\\';
      result += letters[found];
    } else if (c < 0x20 || (ascii && c > 0x7e && c < 0x10000)) {
      escape(c);
    } else if (ascii && c >= 0x10000) {
      escape(0xD800 + ((c - 0x10000) >> 10));
      escape(0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      result += text.substr(at, step.length);
    }
    at += step.length;
  }
  check_size(result);
  return result + "\"";
}

std::string json_number(const Value& value) {
  if (value.is_none()) return "null";
  if (value.kind() == Kind::boolean) return is_true(value) ? "true" : "false";
  if (value.kind() == Kind::integer) return integer_digits(value.integer());
  if (std::isnan(value.real())) return "NaN";
  if (std::isinf(value.real())) return value.real() > 0 ? "Infinity" : "-Infinity";
  return float_repr(value.real());
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value) {
    charge_template_work(1);
    if (value.is_text()) {
      text_ += quoted(value.text(), style_.ensure_ascii);
    } else if (value.is_none() || value.is_number()) {
      text_ += json_number(value);
    } else if (value.is_sequence()) {
      write_items('[', ']', value.items(), [&](const Value& item) { write(item); });
    } else if (value.is_dict()) {
      auto items = value.dict().items;
      if (style_.sort_keys)
        std::stable_sort(items.begin(), items.end(),
                         [](const auto& a, const auto& b) { return less(a.first, b.first); });
      write_items('{', '}', items, [&](const auto& item) {
        const Value& key = item.first;
        if (!key.is_text() && !key.is_none() && !key.is_number())
          throw_error(type_of(key) + " as a key of JSON");
        text_ += key.is_text() ? quoted(key.text(), style_.ensure_ascii) : "\"" + json_number(key) + "\"";
        text_ += style_.after_key;
        write(item.second);
      });
    } else {
      throw_error(type_of(value) + " is written as JSON");
    }
    check_size(text_);
  }

  std::string text() { return std::move(text_); }

 private:
  template <class List, class Write>
  void write_items(char open, char close, const List& items, const Write& write_item) {
    text_ += open;
    ++level_;
    bool first = true;
    for (const auto& item : items) {
      if (!first) text_ += style_.between_items;
      first = false;
      new_line();
      write_item(item);
    }
    --level_;
    if (!items.empty()) new_line();
    text_ += close;
  }
  void new_line() {
    if (!style_.item_per_line) return;
    check_size(text_.size() + style_.indent.size() * static_cast<size_t>(level_));
    text_ += '\n';
    for (int i = 0; i < level_; ++i) text_ += style_.indent;
  }

  const JsonStyle& style_;
  std::string text_;
  int level_ = 0;
};

}  // namespace

std::string integer_digits(Integer number) {
  const bool minus = number < 0;
  std::string digits;
  do {
    const int digit = static_cast<int>(number % 10);
    digits += static_cast<char>('0' + (digit < 0 ? -digit : digit));
    number /= 10;
  } while (number != 0);
  if (minus) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double magnitude = std::abs(value);
  const bool fixed = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  char digits[64];
  const auto format = fixed ? std::chars_format::fixed : std::chars_format::scientific;
  const auto end = std::to_chars(digits, digits + sizeof digits, value, format).ptr;
  std::string text(digits, end);
  if (fixed && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string to_str(const Value& value) {
  if (value.is_undefined()) return "";
  return value.is_text() ? value.text() : repr(value);
}

std::string repr(const Value& value) {
  charge_template_work(1);
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "None";
    case Kind::boolean:
      return is_true(value) ? "True" : "False";
    case Kind::integer:
      return integer_digits(value.integer());
    case Kind::real:
      return float_repr(value.real());
    case Kind::text: {
      std::string text = repr_text(value.text());
      return value.is_markup() ? "Markup(" + text + ")" : text;
    }
    case Kind::list:
      return "[" + repr_items(value.items()) + "]";
    case Kind::tuple:
      return "(" + repr_items(value.items()) + (value.items().size() == 1 ? ",)" : ")");
    case Kind::dict:
      break;
    case Kind::object:
      return value.object()->repr();
  }
  std::string result;
  for (const auto& [key, item] : value.dict().items) {
    if (!result.empty()) result += ", ";
    result += repr(key) + ": " + repr(item);
    check_size(result);
  }
  return "{" + result + "}";
}

std::string json_dumps(const Value& value, const JsonStyle& style) {
  JsonWriter dumper(style);
  dumper.write(value);
  return dumper.text();
}

}  // namespace clover::data::jinja
