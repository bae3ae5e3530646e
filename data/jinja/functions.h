#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/jinja/values.h"

namespace clover::data::jinja {

/// What a filter, a test or a method is called with.
struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;

  /// The argument at `index`, or of that name; undefined where there is none.
  const Value& at(size_t index, const char* name = "") const;
};

// What filters, tests and methods are made of.  InputError where the value is of another type.

const std::string& text_in(const json& value);
int64_t whole_or(const Value& value, int64_t fallback);  // where it is undefined or none
/// The items' texts, or those of an attribute of theirs.
std::string joined(const Value& list, const std::string& separator, const Value& attribute);
Value pairs_of(const Value& dict);                                               // [key, value] of each
std::string with_replaced(const std::string& text, const Arguments& arguments);  // old, new, count

// InputError where there is none of that name, and where Jinja would refuse.

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments);
bool apply_test(const std::string& name, const Value& value, const Arguments& arguments);
/// Of a text or a dict.
Value call_method(const std::string& name, const Value& value, const Arguments& arguments);

}  // namespace clover::data::jinja
