#include <cmath>
#include <cstdlib>

#include "data/chat/jinja/functions/filters.h"
#include "data/chat/jinja/functions/functions.h"
#include "data/chat/jinja/functions/global_functions.h"
#include "data/chat/jinja/values/formatting.h"
#include "data/chat/jinja/values/texts.h"

// Filters that return a number, and filters of single values.
namespace clover::data::jinja {
namespace {

using Kind = Value::Kind;

Value integer_value(double number) {
  if (!(std::abs(number) < 1e38)) throw_error("a number beyond 38 digits as a whole one");
  return Value::of(static_cast<Integer>(number));
}

/// Python's int(text, base); nothing when it raises a ValueError.
std::optional<Value> parse_integer(const std::string& text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  std::string digits = with_ascii_digits(std::string(stripped(text, true, true)));
  const bool minus = digits.starts_with('-');
  if (minus || digits.starts_with('+')) digits.erase(0, 1);
  const char prefix = digits.size() > 1 && digits[0] == '0' ? static_cast<char>(digits[1] | 32) : ' ';
  const int64_t prefix_base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
  if (prefix_base != 0 && (base == 0 || base == prefix_base)) {
    base = prefix_base;
    digits.erase(0, digits.size() > 2 && digits[2] == '_' ? 3 : 2);
  } else if (base == 0) {
    base = 10;
    if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of("0_") != std::string::npos)
      return std::nullopt;
  }
  Integer value = 0;
  bool digit_before = false;
  for (const char c : digits) {
    const int digit = c >= '0' && c <= '9'                 ? c - '0'
                      : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10
                                                           : 99;
    if (c == '_' && digit_before) {
      digit_before = false;
      continue;
    }
    if (digit >= base) return std::nullopt;
    digit_before = true;
    if (__builtin_mul_overflow(value, Integer{base}, &value) ||
        __builtin_add_overflow(value, Integer{digit}, &value))
      throw_error("a whole number grows beyond 38 digits");
  }
  if (!digit_before) return std::nullopt;
  return Value::of(minus ? -value : value);
}

/// Python's float(value); nothing when it raises a TypeError or a ValueError.
std::optional<double> parse_float(const Value& value) {
  if (value.is_undefined()) throw_error("something undefined as a number");
  if (value.is_number()) return value.real();
  if (!value.is_text()) return std::nullopt;
  std::string text;
  const std::string stripped_text = with_ascii_digits(std::string(stripped(value.text(), true, true)));
  for (size_t i = 0; i < stripped_text.size(); ++i) {
    const auto is_digit = [&](size_t at) {
      return at < stripped_text.size() && stripped_text[at] >= '0' && stripped_text[at] <= '9';
    };
    if (stripped_text[i] == '_' && (i == 0 || !is_digit(i - 1) || !is_digit(i + 1))) return std::nullopt;
    if (stripped_text[i] != '_') text += stripped_text[i];
  }
  if (text.empty() || text.find_first_of("xX(") != std::string::npos ||
      stripped(text, true, true).size() != text.size())
    return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  return end == text.c_str() + text.size() ? std::optional(number) : std::nullopt;
}

Value to_integer(const Value& value, const BoundArguments& bound) {
  const Value fallback = bound.is_given(0) ? bound.at(0) : Value::of(Integer{0});
  if (value.is_undefined()) throw_error("something undefined as a number");
  if (value.is_integral()) return Value::of(value.integer());
  if (value.is_text()) {
    if (bound.is_given(1) && !bound.at(1).is_integral()) throw_error("expected a whole number as a base");
    if (const std::optional<Value> found = parse_integer(value.text(), bound.integer(1, 10))) return *found;
  } else if (value.kind() == Kind::real && std::isinf(value.real())) {
    throw_error("an endless number as a whole one");
  }
  const std::optional<double> number = parse_float(value);
  return number && std::isfinite(*number) ? integer_value(*number) : fallback;
}

Value to_float(const Value& value, const BoundArguments& bound) {
  const std::optional<double> number = parse_float(value);
  if (number) return Value::of(*number);
  return bound.is_given(0) ? bound.at(0) : Value::of(0.0);
}

/// Python's round() to `precision` digits after the point: to the nearest number, ties to even.
Value round_to_even(const Value& value, int64_t precision) {
  if (value.is_integral()) {
    Integer unit = 1;
    for (int64_t i = 0; i > precision && unit < Integer{1} << 120; --i) unit *= 10;
    if (unit == 1) return Value::of(value.integer());
    const Integer half = unit / 2, whole = value.integer();
    Integer remainder = whole % unit;
    if (remainder < 0) remainder += unit;
    Integer multiple = whole - remainder;
    if (remainder > half || (remainder == half && (multiple / unit) % 2 != 0)) multiple += unit;
    return Value::of(multiple);
  }
  if (value.kind() != Kind::real) throw_error("a rounded " + type_of(value));
  if (!std::isfinite(value.real()) || precision > 350) return value;
  if (precision >= 0) {
    const FormatSpec spec{.precision = precision, .type = 'f'};
    return Value::of(std::strtod(write_number(value, spec).c_str(), nullptr));
  }
  if (precision < -350) return Value::of(std::copysign(0.0, value.real()));
  const double whole = std::trunc(value.real());
  if (std::abs(whole) >= 1e37) throw_unsupported("the rounding of so great a number");
  const double fraction = std::abs(value.real() - whole);
  // A fraction decides only when the integer part is a tie.
  const auto magnitude = static_cast<Integer>(std::abs(whole));
  Integer unit = 1;
  for (int64_t i = 0; i > precision && unit < Integer{1} << 120; --i) unit *= 10;
  const Integer remainder = magnitude % unit;
  Integer rounded = magnitude - remainder;
  if (2 * remainder > unit || (2 * remainder == unit && (fraction > 0 || (rounded / unit) % 2 != 0)))
    rounded += unit;
  return Value::of(std::copysign(static_cast<double>(rounded), value.real()));
}

Value rounded(const Value& value, const BoundArguments& bound) {
  const std::string method = bound.text(1, "common");
  const int64_t precision = bound.integer(0, 0);
  if (method == "common") return round_to_even(value, precision);
  if (!value.is_number()) throw_error("a rounded " + type_of(value));
  if (method != "ceil" && method != "floor") throw_error("a number is rounded by common, ceil or floor");
  const Value unit = calculate("**", Value::of(Integer{10}), Value::of(Integer{precision}));
  const Value scaled = calculate("*", value, unit);
  const Value whole = scaled.is_integral() ? Value::of(scaled.integer())
                                           : integer_value(method == "ceil" ? std::ceil(scaled.real())
                                                                            : std::floor(scaled.real()));
  return calculate("/", whole, unit);
}

Value absolute(const Value& value, const BoundArguments&) {
  if (!value.is_number()) throw_error("the size of " + type_of(value));
  if (value.kind() == Kind::real) return Value::of(std::abs(value.real()));
  return value.integer() < 0 ? negated(value) : Value::of(value.integer());
}

Value file_size(const Value& value, const BoundArguments& bound) {
  const std::optional<double> bytes = parse_float(value);
  if (!bytes || !std::isfinite(*bytes)) throw_error("a size in bytes that is no number");
  const bool binary = bound.boolean(0);
  const double base = binary ? 1024 : 1000;
  if (*bytes == 1) return Value::of(std::string("1 Byte"));
  if (*bytes < base) return Value::of(std::to_string(static_cast<int64_t>(*bytes)) + " Bytes");
  double unit = base;
  char prefix = ' ';
  for (const char letter : std::string_view("kMGTPEZY")) {
    prefix = letter;
    unit *= base;
    if (*bytes < unit) break;
  }
  const std::string name = std::string(1, binary && prefix == 'k' ? 'K' : prefix) + (binary ? "iB" : "B");
  return Value::of(format_value(Value::of(base * *bytes / unit), ".1f") + " " + name);
}

Value with_default(const Value& value, const BoundArguments& bound) {
  const bool absent = value.is_undefined() || (bound.boolean(1) && !is_true(value));
  return !absent ? value : bound.is_given(0) ? bound.at(0) : Value::of(std::string());
}

Value attribute(const Value& value, const BoundArguments& bound) {
  return get_attribute(value, bound.text(0)).value_or(Value());
}

}  // namespace

const Callables& number_filters() {
  static const Callables filters{
      {"int", {"default= base=", to_integer}},
      {"float", {"default=", to_float}},
      {"round", {"precision= method=", rounded}},
      {"abs", {"", absolute}},
      {"filesizeformat", {"binary=", file_size}},
      {"default", {"default_value= boolean=", with_default}},
      {"d", {"default_value= boolean=", with_default}},
      {"attr", {"name", attribute}},
  };
  return filters;
}

}  // namespace clover::data::jinja
