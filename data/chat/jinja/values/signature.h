#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/jinja/values/operators.h"

namespace clover::data::jinja {

/// Arguments of a call: positional and keyword ones.
struct Arguments {
  std::vector<Value> values;                            // positional
  std::vector<std::pair<std::string, Value>> keywords;  // keyword arguments, in order
};

/// The arguments of a call bound to parameters, as Python's inspect.BoundArguments.
class BoundArguments {
 public:
  /// `parameters`: names with blanks between them.  "name=" is optional, "*" takes further positional
  /// arguments, "**" further keyword arguments; a "/" at the beginning makes all parameters positional-only.
  /// `callee`: its name in error messages.  InputError where Python raises a TypeError.
  BoundArguments(std::string_view parameters, const std::string& callee, const Arguments& arguments);

  // The functions below take the number of a parameter in `parameters`, from 0.
  bool is_given(size_t index) const { return index < values_.size() && is_given_[index]; }
  /// The value of the parameter; undefined when it was left out.
  const Value& at(size_t index) const { return values_[index]; }
  /// Whether the parameter was left out or is none.
  bool is_absent(size_t index) const { return !is_given(index) || values_[index].is_none(); }
  bool boolean(size_t index, bool default_value = false) const {
    return is_given(index) ? is_true(values_[index]) : default_value;
  }
  /// InputError when it is no integer.
  int64_t integer(size_t index, int64_t default_value) const {
    return is_given(index) ? index_of(values_[index]) : default_value;
  }
  /// InputError when it is no text.
  const std::string& text(size_t index) const;
  std::string text(size_t index, const std::string& default_value) const {
    return is_given(index) ? text(index) : default_value;
  }

  const std::vector<Value>& varargs() const { return varargs_; }
  const std::vector<std::pair<std::string, Value>>& kwargs() const { return kwargs_; }

 private:
  std::vector<Value> values_;   // by parameter
  std::vector<bool> is_given_;  // by parameter
  std::vector<Value> varargs_;
  std::vector<std::pair<std::string, Value>> kwargs_;
};

const std::string& text_in(const Value& value);  // the value's text; InputError when it has another type

}  // namespace clover::data::jinja
