#include <cmath>
#include <limits>

#include "data/chat/jinja/values/formatting.h"
#include "data/chat/jinja/values/printing.h"
#include "data/chat/jinja/values/texts.h"
#include "data/text/utf8.h"

// Python's format % value.
namespace clover::data::jinja {
namespace {

using Kind = Value::Kind;

class PercentWriter {
 public:
  PercentWriter(const Value& format, const Value& value)
      : format_(format.text()),
        markup_(format.is_markup()),
        value_(value),
        is_single_value_(value.kind() != Kind::tuple) {}

  std::string write() {
    while (position_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', position_), format_.size());
      result_.append(format_, position_, percent - position_);
      position_ = percent;
      if (position_ < format_.size()) field();
      check_size(result_);
    }
    const bool must_be_used = value_.is_text() || value_.is_none() || value_.is_number();
    if (is_single_value_ ? !any_used_ && must_be_used : next_item_ < value_.items().size())
      throw_error("not all values are used by the format");
    return std::move(result_);
  }

 private:
  char current() const {
    if (position_ >= format_.size()) throw_error("a format that ends within a field");
    return format_[position_];
  }

  void field() {
    ++position_;
    const Value* value_by_name = nullptr;
    if (current() == '(') value_by_name = named_value();
    FormatSpec spec;
    bool zero_pad = false, left_align = false;
    for (;; ++position_) {
      const char c = current();
      if (c == '-') {
        left_align = true;
      } else if (c == '+') {
        spec.sign = '+';
      } else if (c == ' ') {
        if (spec.sign == '-') spec.sign = ' ';
      } else if (c == '0') {
        zero_pad = true;
      } else if (c == '#') {
        spec.alternate = true;
      } else {
        break;
      }
    }
    spec.width = read_number(left_align);  // a negative "*" aligns to the left, as "-" does
    if (current() == '.') {
      ++position_;
      bool is_negative = false;
      spec.precision = read_number(is_negative);
      if (is_negative) spec.precision = 0;
    }
    while (current() == 'h' || current() == 'l' || current() == 'L') ++position_;
    spec.type = format_[position_++];
    if (spec.type == '%') return void(result_ += '%');
    spec.align = left_align ? '<' : '>';
    write_value(value_by_name != nullptr ? *value_by_name : next_value(), spec, zero_pad && !left_align);
  }

  const Value* named_value() {
    if (!value_.is_dict()) throw_error("a format that names its values, for " + type_of(value_));
    const size_t begin = ++position_;
    for (int open = 1; open > 0; ++position_) open += (current() == '(') - (current() == ')');
    any_used_ = true;
    const std::string name = format_.substr(begin, position_ - 1 - begin);
    const Value* found = value_.dict().find(name);
    if (found == nullptr)
      throw_error("a format that names \"" + name.substr(0, 40) + "\", which is not there");
    return found;
  }

  /// Reads a width or a precision: digits, or "*" for the next value.
  int64_t read_number(bool& is_negative) {
    int64_t value = 0;
    if (current() == '*') {
      ++position_;
      value = index_of(next_value());
      if (value < 0) is_negative = true, value = -value;
    }
    for (; current() >= '0' && current() <= '9'; ++position_) {
      value = value * 10 + (format_[position_] - '0');
      check_size(static_cast<size_t>(value));
    }
    check_size(static_cast<size_t>(value));
    return value;
  }

  Value next_value() {
    if (is_single_value_ ? any_used_ : next_item_ == value_.items().size())
      throw_error("too few values for the format");
    any_used_ = true;
    return is_single_value_ ? value_ : value_.items()[next_item_++];
  }

  void write_value(const Value& value, FormatSpec spec, bool zero_pad) {
    switch (spec.type) {
      case 's':
        return void(result_ += write_text(markup_ ? escaped(value) : to_str(value), spec));
      case 'r':
      case 'a':
        if (spec.type == 'a' && count_characters(repr(value)) != std::ssize(repr(value)))
          throw_unsupported("%a of other letters");
        return void(result_ += write_text(markup_ ? escaped(Value::of(repr(value))) : repr(value), spec));
      case 'c': {
        std::string character = value.is_text() ? value.text() : "";
        if (!value.is_text()) append_utf8(character, static_cast<char32_t>(index_of(value)));
        if (count_characters(character) != 1) throw_error("expected one character for %c");
        spec.precision = -1;
        return void(result_ += write_text(character, spec));
      }
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return write_integer(value, spec, zero_pad);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number()) throw_error("%" + std::string(1, spec.type) + " of " + type_of(value));
        if (zero_pad) spec.fill = "0", spec.align = '=';
        return void(result_ += write_number(Value::of(value.real()), spec));
      default:
        throw_error("a format of unknown type");
    }
  }

  void write_integer(const Value& value, FormatSpec spec, bool zero_pad) {
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (!value.is_number() || (!decimal && !value.is_integral()))
      throw_error("%" + std::string(1, spec.type) + " of " + type_of(value));
    if (decimal) spec.type = 'd';
    Value integer = value;
    if (value.kind() == Kind::real) {
      if (!(std::abs(value.real()) < 1e38)) throw_error("a whole number grows beyond 38 digits");
      integer = Value::of(static_cast<Integer>(value.real()));
    }
    if (spec.precision >= 0) {  // of an integer: its least number of digits
      FormatSpec digits{
          .fill = "0", .align = '=', .sign = spec.sign, .alternate = spec.alternate, .type = spec.type};
      digits.width =
          spec.precision + (integer.integer() < 0 || spec.sign != '-') + (spec.alternate && !decimal ? 2 : 0);
      spec.precision = -1;
      if (zero_pad && spec.width > digits.width) digits.width = spec.width;
      return void(result_ += write_text(write_number(integer, digits), spec));
    }
    if (zero_pad) spec.fill = "0", spec.align = '=';
    result_ += write_number(integer, spec);
  }

  const std::string& format_;
  const bool markup_;
  const Value& value_;
  const bool is_single_value_;  // value_ is no tuple: it is the only value
  size_t position_ = 0;         // in the format
  size_t next_item_ = 0;        // of a tuple
  bool any_used_ = false;       // a field has used a value
  std::string result_;
};

}  // namespace

Value percent_format(const Value& format, const Value& value) {
  std::string text = PercentWriter(format, value).write();
  return format.is_markup() ? Value::markup(std::move(text)) : Value::of(std::move(text));
}

}  // namespace clover::data::jinja
