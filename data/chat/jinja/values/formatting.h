#pragma once

#include <string>

#include "data/chat/jinja/values/signature.h"

// Python's two ways to write values into a text.  InputError where Python refuses.
namespace clover::data::jinja {

/// format % value
Value formatted(const Value& format, const Value& value);
/// format.format(..)
Value format_method(const Value& format, const Arguments& arguments);
/// format(value, specification): "{:>8.2f}"
std::string format_value(const Value& value, const std::string& specification);

/// How one number or text is written.
struct Form {
  std::string fill = " ";
  char align = 0;  // < > = ^; 0: as its type does
  char sign = '-';
  bool alternate = false;
  int64_t width = 0, precision = -1;
  char grouping = 0;  // , or _ between thousands
  char type = 0;
};
/// A number by one of d b o x X n, or e E f F g G %.
std::string write_number(const Value& number, const Form& form);
std::string write_text(const std::string& text, const Form& form);

}  // namespace clover::data::jinja
