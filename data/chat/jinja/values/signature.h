#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/jinja/values/operators.h"

namespace clover::data::jinja {

/// Arguments of a call: positional and keyword ones.
struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;
};

/// The arguments of a call bound to parameters, as Python's inspect.BoundArguments.
class BoundArguments {
 public:
  /// `parameters`: names separated by blanks.  "name=" is optional, "*" takes further positional arguments,
  /// "**" further keyword arguments; a "/" at the beginning makes all of them positional-only.  `what` names
  /// the callee in errors. InputError where Python raises a TypeError.
  BoundArguments(std::string_view parameters, const std::string& what, const Arguments& arguments);

  bool given(size_t at) const { return at < values_.size() && given_[at]; }
  /// The value of parameter number `at`; undefined when it was left out.
  const Value& at(size_t at) const { return values_[at]; }
  bool is_absent(size_t at) const { return !given(at) || values_[at].is_none(); }
  bool truth(size_t at, bool fallback = false) const { return given(at) ? is_true(values_[at]) : fallback; }
  /// InputError when it is no integer.
  int64_t integer(size_t at, int64_t fallback) const { return given(at) ? index_of(values_[at]) : fallback; }
  /// InputError when it is no text.
  const std::string& text(size_t at) const;
  std::string text(size_t at, const std::string& fallback) const { return given(at) ? text(at) : fallback; }

  const std::vector<Value>& varargs() const { return varargs_; }
  const std::vector<std::pair<std::string, Value>>& kwargs() const { return kwargs_; }

 private:
  std::vector<Value> values_;
  std::vector<bool> given_;
  std::vector<Value> varargs_;
  std::vector<std::pair<std::string, Value>> kwargs_;
};

const std::string& text_in(const Value& value);  // InputError when it is no text

}  // namespace clover::data::jinja
