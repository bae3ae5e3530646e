#pragma once

#include <string>

#include "data/chat/jinja/values/signature.h"

// Python's string formatting.  InputError where Python raises an error.
namespace clover::data::jinja {

/// format % value
Value percent_format(const Value& format, const Value& value);
/// format.format(..)
Value str_format(const Value& format, const Arguments& arguments);
/// format(value, specification): "{:>8.2f}"
std::string format_value(const Value& value, const std::string& specification);

/// A format specification, of Python's format() or of the % operator.
struct FormatSpec {
  std::string fill = " ";  // one character
  char align = 0;          // < > = ^; 0: the default of the type
  char sign = '-';         // + - or blank, as in Python
  bool alternate = false;  // #
  int64_t width = 0;       // characters
  int64_t precision = -1;  // -1: none
  char grouping = 0;       // , or _ between thousands; 0: none
  char type = 0;           // 0: none
};
/// Formats a number; spec.type is 0 or one of d b o x X n, e E f F g G %.
std::string write_number(const Value& number, const FormatSpec& spec);
std::string write_text(const std::string& text, const FormatSpec& spec);

}  // namespace clover::data::jinja
