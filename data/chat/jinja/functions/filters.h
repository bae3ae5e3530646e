#pragma once

#include <map>
#include <string>

#include "data/chat/jinja/values/signature.h"

namespace clover::data::jinja {

/// A filter, a test or a method: its parameters, as Bound reads them, and what it makes of a value.
struct Callable {
  const char* parameters;
  Value (*make)(const Value& value, const Bound& bound);
};
using Callables = std::map<std::string, Callable>;

const Callables& text_filters();
const Callables& list_filters();
const Callables& number_filters();
const Callables& text_methods();

/// Looks for a part of a value by "name.0.name", as many filters do; the value itself where `path` is none.
Value part_at(const Value& value, const Value& path);
/// In lower case if it is a text, for comparisons.
Value without_case(const Value& value);
/// The soft_str of Jinja's filters: markup stays.
Value as_text(const Value& value);
Value of_text(std::string text, bool markup);

}  // namespace clover::data::jinja
