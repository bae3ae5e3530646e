#pragma once

#include <string>

#include "data/chat/jinja/values/values.h"

// Conversion of values to text.
namespace clover::data::jinja {

std::string to_str(const Value& value);  // str()
std::string repr(const Value& value);    // repr()
std::string integer_digits(Integer number);
std::string float_repr(double number);  // the shortest text that parses to the same number

/// Options of Python's json.dumps.
struct JsonStyle {
  bool ensure_ascii = false;  // escape characters that are not ASCII
  bool sort_keys = false;
  bool item_per_line = false;  // begin a new line for each item
  std::string indent = {};     // what such a line begins with, once for each level of nesting
  std::string between_items = ", ", after_key = ": ";
};
std::string json_dumps(const Value& value, const JsonStyle& style);

}  // namespace clover::data::jinja
