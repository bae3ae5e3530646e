#pragma once

#include <map>
#include <string>

#include "data/chat/jinja/values/signature.h"

namespace clover::data::jinja {

/// A filter or method: its parameters in the notation of BoundArguments (values/signature.h), and the
/// function that computes its result for a value.
struct Callable {
  const char* parameters;
  Value (*compute)(const Value& value, const BoundArguments& bound);
};
using Callables = std::map<std::string, Callable>;  // by name

const Callables& text_filters();
const Callables& list_filters();
const Callables& number_filters();
const Callables& text_methods();

/// The attribute of a value at a path such as "name.0.name", as in jinja2's make_attrgetter; the value itself
/// when `path` is none.
Value attribute_at_path(const Value& value, const Value& path);
/// A text in lower case, other values unchanged: for comparisons that ignore case.
Value lowercased(const Value& value);
/// markupsafe's soft_str: str() that keeps markup.
Value soft_str(const Value& value);
/// The text as markup (Value::markup) or as an ordinary text.
Value text_or_markup(std::string text, bool markup);

}  // namespace clover::data::jinja
