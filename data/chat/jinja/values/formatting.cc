#include "data/chat/jinja/values/formatting.h"

#include <cmath>
#include <cstdio>

#include "data/chat/jinja/values/printing.h"
#include "data/chat/jinja/values/texts.h"
#include "data/text/utf8.h"

namespace clover::data::jinja {
namespace {

using Kind = Value::Kind;

constexpr int64_t most_precision = 1000;

std::string in_base(Integer number, int base, bool upper) {
  std::string digits;
  do {
    const int digit = static_cast<int>(number % base);
    digits += (upper ? "0123456789ABCDEF" : "0123456789abcdef")[digit < 0 ? -digit : digit];
    number /= base;
  } while (number != 0);
  return {digits.rbegin(), digits.rend()};
}

/// Digits with `mark` between groups of `of`, counted from the right, padded with zeros to `least`
/// characters.
std::string grouped(const std::string& digits, char mark, size_t of, size_t least) {
  std::string all;
  const size_t count = std::max(digits.size(), least);
  for (size_t i = 0; i < count; ++i) {
    if (i > 0 && (count - i) % of == 0) all += mark;
    all += i < count - digits.size() ? '0' : digits[i - (count - digits.size())];
  }
  return all;
}

/// The digits of a number without its sign, as C's printf writes them.
std::string real_digits(double number, const FormatSpec& form) {
  const int64_t precision = form.precision < 0 ? 6 : form.precision;
  if (precision > most_precision) throw_error("a number with more than 1000 digits behind its point");
  if (std::isnan(number) || std::isinf(number)) {
    const bool upper = form.type == 'F' || form.type == 'E' || form.type == 'G';
    return std::isnan(number) ? (upper ? "NAN" : "nan") : upper ? "INF" : "inf";
  }
  const char type = form.type == '%' ? 'f' : form.type == 'n' ? 'g' : form.type;
  if (type == 0 && form.precision < 0) return float_repr(number);
  const std::string pattern = std::string(form.alternate ? "%#.*" : "%.*") + (type == 0 ? 'g' : type);
  char text[1500];
  const int length = std::snprintf(text, sizeof text, pattern.c_str(), static_cast<int>(precision), number);
  std::string digits(text, static_cast<size_t>(length));
  // Without a type, Python keeps one digit after the point and switches to an exponent one digit sooner.
  if (type != 0) return digits;
  if (digits.find('e') == std::string::npos && number != 0 &&
      std::abs(number) >= std::pow(10.0, static_cast<double>(std::max<int64_t>(precision, 1) - 1))) {
    FormatSpec shorter = form;
    shorter.type = 'e';
    shorter.precision = std::max<int64_t>(precision, 1) - 1;
    std::string mantissa = real_digits(number, shorter);
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
  std::string prefix, whole, rest;  // "0x", digits before the point, the rest
  size_t group = 3;
};

Digits digits_for(const Value& number, const FormatSpec& form) {
  Digits digits;
  if (number.is_integral() &&
      (form.type == 0 || std::string_view("dboxXn").find(form.type) != std::string_view::npos)) {
    const int base = form.type == 'b' ? 2 : form.type == 'o' ? 8 : (form.type | 32) == 'x' ? 16 : 10;
    digits.whole = in_base(number.integer(), base, form.type == 'X');
    if (base != 10) digits.group = 4;
    if (form.alternate && base != 10) digits.prefix = std::string("0") + form.type;
    return digits;
  }
  double real = std::abs(number.real());
  if (form.type == '%') real *= 100;
  const std::string all = real_digits(real, form);
  const size_t end = std::min(all.find_first_not_of("0123456789"), all.size());
  digits.whole = all.substr(0, end);
  digits.rest = all.substr(end) + (form.type == '%' ? "%" : "");
  return digits;
}

FormatSpec parse_format_spec(const std::string& text) {
  FormatSpec form;
  size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  const auto now = [&] { return at < text.size() ? text[at] : '\0'; };
  const size_t first = text.empty() ? 0 : decode_utf8(text, 0).length;
  if (first < text.size() && is_align(text[first])) {
    form.fill = text.substr(0, first);
    form.align = text[first];
    at = first + 1;
  } else if (is_align(now())) {
    form.align = text[at++];
  }
  if (now() == '+' || now() == '-' || now() == ' ') form.sign = text[at++];
  if (now() == 'z') throw_unsupported("the option z of a format");
  if (now() == '#') form.alternate = true, ++at;
  if (now() == '0') {
    if (form.align == 0) form.fill = "0", form.align = '=';
    ++at;
  }
  const auto number = [&] {
    int64_t value = 0;
    while (now() >= '0' && now() <= '9') {
      value = value * 10 + (text[at++] - '0');
      check_size(static_cast<size_t>(value));
    }
    return value;
  };
  form.width = number();
  if (now() == ',' || now() == '_') form.grouping = text[at++];
  if (now() == '.') {
    ++at;
    if (now() < '0' || now() > '9') throw_error("a format without a precision behind its point");
    form.precision = number();
  }
  if (at < text.size()) form.type = text[at++];
  if (at != text.size()) throw_error("a format that Python does not know, \"" + text.substr(0, 40) + "\"");
  return form;
}

}  // namespace

std::string write_text(const std::string& text, const FormatSpec& form) {
  std::string kept = text;
  if (form.precision >= 0) {
    const std::vector<size_t> starts = character_starts(text);
    kept = text.substr(0, starts[std::min<size_t>(starts.size() - 1, static_cast<size_t>(form.precision))]);
  }
  return padded(kept, form.width, form.fill, form.align == '>' ? 1 : form.align == '^' ? 0 : -1);
}

std::string write_number(const Value& number, const FormatSpec& form) {
  Digits digits = digits_for(number, form);
  const bool minus =
      number.is_integral() ? number.integer() < 0 : std::signbit(number.real()) && !std::isnan(number.real());
  const std::string sign = minus ? "-" : form.sign == '-' ? "" : std::string(1, form.sign);
  const std::string front = sign + digits.prefix;
  const bool zeros = form.align == '=' && form.fill == "0";
  if (form.grouping != 0) {
    size_t least = 0;
    const auto more = static_cast<int64_t>(front.size() + digits.rest.size());
    if (zeros && form.width > more) {  // the padding zeros are grouped, too
      const auto room = static_cast<size_t>(form.width - more);
      least = room - room / (digits.group + 1);
    }
    digits.whole = grouped(digits.whole, form.grouping, digits.group, least);
  }
  const std::string whole = digits.whole + digits.rest;
  if (form.align == '=')
    return front + padded(whole, form.width - static_cast<int64_t>(front.size()), form.fill, 1);
  const int side = form.align == '<' ? -1 : form.align == '^' ? 0 : 1;
  if (side != 0) return padded(front + whole, form.width, form.fill, side);
  // For an odd number of fill characters, format() puts the extra one on the other side than str.center().
  const int64_t more = form.width - count_characters(front + whole);
  return more <= 0 ? front + whole
                   : padded(padded(front + whole, form.width - (more + 1) / 2, form.fill, 1), form.width,
                            form.fill, -1);
}

std::string format_value(const Value& value, const std::string& specification) {
  if (specification.empty()) return to_str(value);
  if (value.is_text()) {
    FormatSpec form = parse_format_spec(specification);
    if ((form.type != 0 && form.type != 's') || form.sign != '-' || form.align == '=' || form.grouping != 0 ||
        form.alternate) {
      if (form.align == '=' && form.fill == "0" && form.type != 'd' &&
          specification.find('=') == std::string::npos)
        form.align = '<';
      else
        throw_error("a format of numbers for a text");
    }
    if (form.align != '^') return write_text(value.text(), form);
    FormatSpec unpadded = form;
    unpadded.width = 0;
    const std::string kept = write_text(value.text(), unpadded);
    const int64_t more = form.width - count_characters(kept);
    return more <= 0
               ? kept
               : padded(padded(kept, form.width - (more + 1) / 2, form.fill, 1), form.width, form.fill, -1);
  }
  if (!value.is_number()) throw_error("a format for " + type_of(value));
  const FormatSpec form = parse_format_spec(specification);
  static const std::string_view of_whole("dboxXnc"), of_real("eEfFgGn%");
  const bool real = of_real.find(form.type) != std::string_view::npos;
  if (form.type != 0 && !real && (!value.is_integral() || of_whole.find(form.type) == std::string_view::npos))
    throw_error("the format \"" + std::string(1, form.type) + "\" for " + type_of(value));
  if (value.is_integral() && form.precision >= 0 && !(real && form.type != 'n'))
    throw_error("a precision for a whole number");
  if (form.type != 'c') return write_number(value, form);
  std::string character;
  append_utf8(character, static_cast<char32_t>(index_of(value)));
  return write_text(character, form);
}

}  // namespace clover::data::jinja
