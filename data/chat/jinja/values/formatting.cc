#include "data/chat/jinja/values/formatting.h"

#include <cmath>
#include <cstdio>

#include "data/chat/jinja/values/printing.h"
#include "data/chat/jinja/values/texts.h"
#include "data/text/utf8.h"

namespace clover::data::jinja {
namespace {

using Kind = Value::Kind;

constexpr int64_t max_precision = 1000;

std::string in_base(Integer number, int base, bool upper) {
  std::string digits;
  do {
    const int digit = static_cast<int>(number % base);
    digits += (upper ? "0123456789ABCDEF" : "0123456789abcdef")[digit < 0 ? -digit : digit];
    number /= base;
  } while (number != 0);
  return {digits.rbegin(), digits.rend()};
}

/// `digits` with `separator` between groups of `group_size` digits, counted from the right.  Zeros are put
/// before them if they are fewer than `min_digits`.
std::string group_digits(const std::string& digits, char separator, size_t group_size, size_t min_digits) {
  std::string result;
  const size_t count = std::max(digits.size(), min_digits);
  for (size_t i = 0; i < count; ++i) {
    if (i > 0 && (count - i) % group_size == 0) result += separator;
    result += i < count - digits.size() ? '0' : digits[i - (count - digits.size())];
  }
  return result;
}

/// The digits of a number without its sign, as C's printf writes them.
std::string real_digits(double number, const FormatSpec& spec) {
  const int64_t precision = spec.precision < 0 ? 6 : spec.precision;
  if (precision > max_precision) throw_error("a number with more than 1000 digits behind its point");
  if (std::isnan(number) || std::isinf(number)) {
    const bool upper = spec.type == 'F' || spec.type == 'E' || spec.type == 'G';
    return std::isnan(number) ? (upper ? "NAN" : "nan") : upper ? "INF" : "inf";
  }
  const char type = spec.type == '%' ? 'f' : spec.type == 'n' ? 'g' : spec.type;
  if (type == 0 && spec.precision < 0) return float_repr(number);
  const std::string pattern = std::string(spec.alternate ? "%#.*" : "%.*") + (type == 0 ? 'g' : type);
  char text[1500];
  const int length = std::snprintf(text, sizeof text, pattern.c_str(), static_cast<int>(precision), number);
  std::string digits(text, static_cast<size_t>(length));
  // Without a type, Python keeps one digit after the point and switches to an exponent one digit sooner.
  if (type != 0) return digits;
  if (digits.find('e') == std::string::npos && number != 0 &&
      std::abs(number) >= std::pow(10.0, static_cast<double>(std::max<int64_t>(precision, 1) - 1))) {
    FormatSpec exponent_spec = spec;
    exponent_spec.type = 'e';
    exponent_spec.precision = std::max<int64_t>(precision, 1) - 1;
    std::string mantissa = real_digits(number, exponent_spec);
    const size_t exponent = mantissa.find('e');
    std::string head = mantissa.substr(0, exponent);
    if (head.find('.') != std::string::npos) {
      head.erase(head.find_last_not_of('0') + 1);
      if (head.ends_with('.')) head.pop_back();
    }
    return head + mantissa.substr(exponent);
  }
  if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
  return digits;
}

struct Digits {
  std::string prefix;        // "0x"
  std::string integer_part;  // the digits before the point
  std::string fraction;      // the point and all after it, an exponent or "%" included
  size_t group = 3;          // digits between separators of groups
};

Digits digits_of(const Value& number, const FormatSpec& spec) {
  Digits digits;
  if (number.is_integral() &&
      (spec.type == 0 || std::string_view("dboxXn").find(spec.type) != std::string_view::npos)) {
    const int base = spec.type == 'b' ? 2 : spec.type == 'o' ? 8 : (spec.type | 32) == 'x' ? 16 : 10;
    digits.integer_part = in_base(number.integer(), base, spec.type == 'X');
    if (base != 10) digits.group = 4;
    if (spec.alternate && base != 10) digits.prefix = std::string("0") + spec.type;
    return digits;
  }
  double real = std::abs(number.real());
  if (spec.type == '%') real *= 100;
  const std::string text = real_digits(real, spec);
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  digits.integer_part = text.substr(0, end);
  digits.fraction = text.substr(end) + (spec.type == '%' ? "%" : "");
  return digits;
}

FormatSpec parse_format_spec(const std::string& text) {
  FormatSpec spec;
  size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  const auto current = [&] { return at < text.size() ? text[at] : '\0'; };
  const size_t first = text.empty() ? 0 : decode_utf8(text, 0).length;
  if (first < text.size() && is_align(text[first])) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    at = first + 1;
  } else if (is_align(current())) {
    spec.align = text[at++];
  }
  if (current() == '+' || current() == '-' || current() == ' ') spec.sign = text[at++];
  if (current() == 'z') throw_unsupported("the option z of a format");
  if (current() == '#') spec.alternate = true, ++at;
  if (current() == '0') {
    if (spec.align == 0) spec.fill = "0", spec.align = '=';
    ++at;
  }
  const auto number = [&] {
    int64_t value = 0;
    while (current() >= '0' && current() <= '9') {
      value = value * 10 + (text[at++] - '0');
      check_size(static_cast<size_t>(value));
    }
    return value;
  };
  spec.width = number();
  if (current() == ',' || current() == '_') spec.grouping = text[at++];
  if (current() == '.') {
    ++at;
    if (current() < '0' || current() > '9') throw_error("a format without a precision behind its point");
    spec.precision = number();
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) throw_error("a format that Python does not know, \"" + text.substr(0, 40) + "\"");
  return spec;
}

}  // namespace

std::string write_text(const std::string& text, const FormatSpec& spec) {
  std::string cut_text = text;
  if (spec.precision >= 0) {
    const std::vector<size_t> starts = character_starts(text);
    cut_text =
        text.substr(0, starts[std::min<size_t>(starts.size() - 1, static_cast<size_t>(spec.precision))]);
  }
  return padded(cut_text, spec.width, spec.fill, spec.align == '>' ? 1 : spec.align == '^' ? 0 : -1);
}

std::string write_number(const Value& number, const FormatSpec& spec) {
  Digits digits = digits_of(number, spec);
  const bool minus =
      number.is_integral() ? number.integer() < 0 : std::signbit(number.real()) && !std::isnan(number.real());
  const std::string sign = minus ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  const std::string front = sign + digits.prefix;
  const bool pads_with_zeros = spec.align == '=' && spec.fill == "0";
  if (spec.grouping != 0) {
    size_t min_digits = 0;
    const auto other_width = static_cast<int64_t>(front.size() + digits.fraction.size());
    if (pads_with_zeros && spec.width > other_width) {  // the padding zeros are grouped, too
      const auto number_width = static_cast<size_t>(spec.width - other_width);
      min_digits = number_width - number_width / (digits.group + 1);
    }
    digits.integer_part = group_digits(digits.integer_part, spec.grouping, digits.group, min_digits);
  }
  const std::string body = digits.integer_part + digits.fraction;
  if (spec.align == '=')
    return front + padded(body, spec.width - static_cast<int64_t>(front.size()), spec.fill, 1);
  const int side = spec.align == '<' ? -1 : spec.align == '^' ? 0 : 1;
  if (side != 0) return padded(front + body, spec.width, spec.fill, side);
  // For an odd number of fill characters, format() puts the extra one on the other side than str.center().
  const int64_t padding = spec.width - count_characters(front + body);
  return padding <= 0 ? front + body
                      : padded(padded(front + body, spec.width - (padding + 1) / 2, spec.fill, 1), spec.width,
                               spec.fill, -1);
}

std::string format_value(const Value& value, const std::string& specification) {
  if (specification.empty()) return to_str(value);
  if (value.is_text()) {
    FormatSpec spec = parse_format_spec(specification);
    if ((spec.type != 0 && spec.type != 's') || spec.sign != '-' || spec.align == '=' || spec.grouping != 0 ||
        spec.alternate) {
      if (spec.align == '=' && spec.fill == "0" && spec.type != 'd' &&
          specification.find('=') == std::string::npos)
        spec.align = '<';
      else
        throw_error("a format of numbers for a text");
    }
    if (spec.align != '^') return write_text(value.text(), spec);
    FormatSpec unpadded = spec;
    unpadded.width = 0;
    const std::string cut_text = write_text(value.text(), unpadded);
    const int64_t padding = spec.width - count_characters(cut_text);
    return padding <= 0 ? cut_text
                        : padded(padded(cut_text, spec.width - (padding + 1) / 2, spec.fill, 1), spec.width,
                                 spec.fill, -1);
  }
  if (!value.is_number()) throw_error("a format for " + type_of(value));
  const FormatSpec spec = parse_format_spec(specification);
  static const std::string_view integer_types("dboxXnc"), float_types("eEfFgGn%");
  const bool real = float_types.find(spec.type) != std::string_view::npos;
  if (spec.type != 0 && !real &&
      (!value.is_integral() || integer_types.find(spec.type) == std::string_view::npos))
    throw_error("the format \"" + std::string(1, spec.type) + "\" for " + type_of(value));
  if (value.is_integral() && spec.precision >= 0 && !(real && spec.type != 'n'))
    throw_error("a precision for a whole number");
  if (spec.type != 'c') return write_number(value, spec);
  std::string character;
  append_utf8(character, static_cast<char32_t>(index_of(value)));
  return write_text(character, spec);
}

}  // namespace clover::data::jinja
