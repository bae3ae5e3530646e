#include "data/chat/jinja/values/signature.h"

#include <algorithm>

namespace clover::data::jinja {

BoundArguments::BoundArguments(std::string_view parameters, const std::string& callee,
                               const Arguments& arguments) {
  std::vector<std::string_view> names;
  size_t required_count = 0;
  bool takes_varargs = false, takes_kwargs = false, positional_only = false;
  for (size_t at = 0; at < parameters.size();) {
    const size_t end = std::min(parameters.find(' ', at), parameters.size());
    std::string_view name = parameters.substr(at, end - at);
    at = end + 1;
    if (name == "*") {
      takes_varargs = true;
    } else if (name == "**") {
      takes_kwargs = true;
    } else if (name == "/") {
      positional_only = true;
    } else if (name.ends_with('=')) {
      names.push_back(name.substr(0, name.size() - 1));
    } else {
      names.push_back(name);
      required_count = names.size();
    }
  }
  values_.resize(names.size());
  is_given_.resize(names.size());
  for (size_t i = 0; i < arguments.values.size(); ++i) {
    if (i < names.size()) {
      values_[i] = arguments.values[i];
      is_given_[i] = true;
    } else if (takes_varargs) {
      varargs_.push_back(arguments.values[i]);
    } else {
      throw_error(callee + " takes at most " + std::to_string(names.size()) + " values, found " +
                  std::to_string(arguments.values.size()));
    }
  }
  for (const auto& [name, value] : arguments.keywords) {
    const auto found = positional_only ? names.end() : std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      if (!takes_kwargs) throw_error(callee + " takes no value named \"" + name + "\"");
      kwargs_.emplace_back(name, value);
      continue;
    }
    const auto at = static_cast<size_t>(found - names.begin());
    if (is_given_[at]) throw_error(callee + " is given two values for \"" + name + "\"");
    values_[at] = value;
    is_given_[at] = true;
  }
  for (size_t i = 0; i < required_count; ++i)
    if (!is_given_[i]) throw_error(callee + " needs a value for \"" + std::string(names[i]) + "\"");
}

const std::string& BoundArguments::text(size_t index) const {
  return text_in(values_[index]);
}

const std::string& text_in(const Value& value) {
  if (!value.is_text()) throw_error("expected a text, found " + type_of(value));
  return value.text();
}

}  // namespace clover::data::jinja
