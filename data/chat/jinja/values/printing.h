#pragma once

#include <string>

#include "data/chat/jinja/values/values.h"

// Values as texts.
namespace clover::data::jinja {

std::string printed(const Value& value);  // str()
std::string shown(const Value& value);    // repr()
std::string digits_of(Integer number);
std::string text_of_real(double number);  // the shortest that reads back the same

/// Of json.dumps.
struct JsonStyle {
  bool ascii = false;  // other characters are escaped
  bool sorted = false;
  bool lines = false;       // one for each item,
  std::string indent = {};  // which begins with this for each that it lies within
  std::string between_items = ", ", after_key = ": ";
};
std::string dumped(const Value& value, const JsonStyle& style);

}  // namespace clover::data::jinja
