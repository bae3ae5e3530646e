#include "data/chat/jinja/functions/filters.h"

#include "data/chat/jinja/functions/functions.h"
#include "data/chat/jinja/values/printing.h"
#include "data/chat/jinja/values/texts.h"

// The look-up of filters by name, and functions that the filters share.  The filters are in text_filters.cc,
// list_filters.cc and number_filters.cc.
namespace clover::data::jinja {
namespace {

/// A part of an attribute path: digits alone are an index.
Value key_of(const std::string& text) {
  if (!is_of_kind("isdigit", text)) return Value::of(text);
  if (text.size() > 18 || text.find_first_not_of("0123456789") != std::string::npos)
    throw_unsupported("an index of that length");
  return Value::of(Integer{std::stoll(text)});
}

const Callable* find_filter(const std::string& name) {
  for (const Callables* filters : {&text_filters(), &list_filters(), &number_filters()})
    if (const auto found = filters->find(name); found != filters->end()) return &found->second;
  return nullptr;
}

}  // namespace

Value attribute_at_path(const Value& value, const Value& path) {
  if (path.is_none()) return value;
  if (!path.is_text()) return item_of(value, path);
  Value part = value;
  for (const std::string& key : split_at(path.text(), ".", -1)) part = item_of(part, key_of(key));
  return part;
}

Value lowercased(const Value& value) {
  return value.is_text() ? Value::of(lower(value.text())) : value;
}

Value soft_str(const Value& value) {
  return value.is_text() ? value : Value::of(to_str(value));
}

Value text_or_markup(std::string text, bool markup) {
  return markup ? Value::markup(std::move(text)) : Value::of(std::move(text));
}

bool is_unsupported_filter(const std::string& name) {
  return name == "pprint" || name == "random" || name == "urlize";
}

bool has_filter(const std::string& name) {
  return find_filter(name) != nullptr || is_unsupported_filter(name);
}

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments) {
  const Callable* found = find_filter(name);
  if (found == nullptr) throw_unsupported("the filter \"" + name + "\"");
  return found->compute(value, BoundArguments(found->parameters, "the filter \"" + name + "\"", arguments));
}

}  // namespace clover::data::jinja
