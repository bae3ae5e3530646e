#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/jinja/values/operators.h"

namespace clover::data::jinja {

/// What something is called with.
struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;
};

/// Arguments in the places of their parameters.
class Bound {
 public:
  /// `parameters`: their names with blanks between them; "name=" may be left out, "*" takes the rest, "**"
  /// the rest of the named.  A "/" at first: none may be named.  InputError where Python raises a TypeError.
  Bound(std::string_view parameters, const std::string& what, const Arguments& arguments);

  bool given(size_t at) const { return at < values_.size() && given_[at]; }
  /// Undefined where it was left out.
  const Value& at(size_t at) const { return values_[at]; }
  bool is_absent(size_t at) const { return !given(at) || values_[at].is_none(); }
  bool truth(size_t at, bool fallback = false) const { return given(at) ? is_true(values_[at]) : fallback; }
  /// InputError where it is no whole number.
  int64_t whole(size_t at, int64_t fallback) const { return given(at) ? index_of(values_[at]) : fallback; }
  /// InputError where it is no text.
  const std::string& text(size_t at) const;
  std::string text(size_t at, const std::string& fallback) const { return given(at) ? text(at) : fallback; }

  const std::vector<Value>& rest() const { return rest_; }
  const std::vector<std::pair<std::string, Value>>& rest_named() const { return rest_named_; }

 private:
  std::vector<Value> values_;
  std::vector<bool> given_;
  std::vector<Value> rest_;
  std::vector<std::pair<std::string, Value>> rest_named_;
};

const std::string& text_in(const Value& value);  // InputError where it is none

}  // namespace clover::data::jinja
