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

class Writer {
 public:
  Writer(const Value& format, const Value& value)
      : format_(format.text()),
        markup_(format.is_markup()),
        value_(value),
        one_(value.kind() != Kind::tuple) {}

  std::string write() {
    while (at_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', at_), format_.size());
      all_.append(format_, at_, percent - at_);
      at_ = percent;
      if (at_ < format_.size()) field();
      check_size(all_);
    }
    const bool plain = value_.is_text() || value_.is_none() || value_.is_number();
    if (one_ ? !used_ && plain : next_ < value_.items().size())
      throw_error("not all values are used by the format");
    return std::move(all_);
  }

 private:
  char now() const {
    if (at_ >= format_.size()) throw_error("a format that ends within a field");
    return format_[at_];
  }

  void field() {
    ++at_;
    const Value* named = nullptr;
    if (now() == '(') named = by_name();
    FormatSpec form;
    bool zeros = false, left = false;
    for (;; ++at_) {
      const char c = now();
      if (c == '-') {
        left = true;
      } else if (c == '+') {
        form.sign = '+';
      } else if (c == ' ') {
        if (form.sign == '-') form.sign = ' ';
      } else if (c == '0') {
        zeros = true;
      } else if (c == '#') {
        form.alternate = true;
      } else {
        break;
      }
    }
    form.width = number(left);
    if (now() == '.') {
      ++at_;
      bool minus = false;
      form.precision = number(minus);
      if (minus) form.precision = 0;
    }
    while (now() == 'h' || now() == 'l' || now() == 'L') ++at_;
    form.type = format_[at_++];
    if (form.type == '%') return void(all_ += '%');
    form.align = left ? '<' : '>';
    put(named != nullptr ? *named : next_value(), form, zeros && !left);
  }

  const Value* by_name() {
    if (!value_.is_dict()) throw_error("a format that names its values, for " + type_of(value_));
    const size_t begin = ++at_;
    for (int open = 1; open > 0; ++at_) open += (now() == '(') - (now() == ')');
    used_ = true;
    const std::string name = format_.substr(begin, at_ - 1 - begin);
    const Value* found = value_.dict().find(name);
    if (found == nullptr)
      throw_error("a format that names \"" + name.substr(0, 40) + "\", which is not there");
    return found;
  }

  int64_t number(bool& minus) {
    int64_t value = 0;
    if (now() == '*') {
      ++at_;
      value = index_of(next_value());
      if (value < 0) minus = true, value = -value;
    }
    for (; now() >= '0' && now() <= '9'; ++at_) {
      value = value * 10 + (format_[at_] - '0');
      check_size(static_cast<size_t>(value));
    }
    check_size(static_cast<size_t>(value));
    return value;
  }

  Value next_value() {
    if (one_ ? used_ : next_ == value_.items().size()) throw_error("too few values for the format");
    used_ = true;
    return one_ ? value_ : value_.items()[next_++];
  }

  void put(const Value& value, FormatSpec form, bool zeros) {
    switch (form.type) {
      case 's':
        return void(all_ += write_text(markup_ ? escaped(value) : to_str(value), form));
      case 'r':
      case 'a':
        if (form.type == 'a' && count_characters(repr(value)) != std::ssize(repr(value)))
          throw_unsupported("%a of other letters");
        return void(all_ += write_text(markup_ ? escaped(Value::of(repr(value))) : repr(value), form));
      case 'c': {
        std::string character = value.is_text() ? value.text() : "";
        if (!value.is_text()) append_utf8(character, static_cast<char32_t>(index_of(value)));
        if (count_characters(character) != 1) throw_error("expected one character for %c");
        form.precision = -1;
        return void(all_ += write_text(character, form));
      }
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return whole(value, form, zeros);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number()) throw_error("%" + std::string(1, form.type) + " of " + type_of(value));
        if (zeros) form.fill = "0", form.align = '=';
        return void(all_ += write_number(Value::of(value.real()), form));
      default:
        throw_error("a format of unknown type");
    }
  }

  void whole(const Value& value, FormatSpec form, bool zeros) {
    const bool decimal = form.type == 'd' || form.type == 'i' || form.type == 'u';
    if (!value.is_number() || (!decimal && !value.is_integral()))
      throw_error("%" + std::string(1, form.type) + " of " + type_of(value));
    if (decimal) form.type = 'd';
    Value number = value;
    if (value.kind() == Kind::real) {
      if (!(std::abs(value.real()) < 1e38)) throw_error("a whole number grows beyond 38 digits");
      number = Value::of(static_cast<Integer>(value.real()));
    }
    if (form.precision >= 0) {  // digits
      FormatSpec digits{
          .fill = "0", .align = '=', .sign = form.sign, .alternate = form.alternate, .type = form.type};
      digits.width =
          form.precision + (number.integer() < 0 || form.sign != '-') + (form.alternate && !decimal ? 2 : 0);
      form.precision = -1;
      if (zeros && form.width > digits.width) digits.width = form.width;
      return void(all_ += write_text(write_number(number, digits), form));
    }
    if (zeros) form.fill = "0", form.align = '=';
    all_ += write_number(number, form);
  }

  const std::string& format_;
  const bool markup_;
  const Value& value_;
  const bool one_;
  size_t at_ = 0, next_ = 0;
  bool used_ = false;
  std::string all_;
};

}  // namespace

Value percent_format(const Value& format, const Value& value) {
  std::string text = Writer(format, value).write();
  return format.is_markup() ? Value::markup(std::move(text)) : Value::of(std::move(text));
}

}  // namespace clover::data::jinja
