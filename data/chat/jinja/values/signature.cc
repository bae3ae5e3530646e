#include "data/chat/jinja/values/signature.h"

#include <algorithm>

namespace clover::data::jinja {

BoundArguments::BoundArguments(std::string_view parameters, const std::string& what,
                               const Arguments& arguments) {
  std::vector<std::string_view> names;
  size_t needed = 0;
  bool takes_rest = false, takes_named = false, by_place = false;
  for (size_t at = 0; at < parameters.size();) {
    const size_t end = std::min(parameters.find(' ', at), parameters.size());
    std::string_view name = parameters.substr(at, end - at);
    at = end + 1;
    if (name == "*") {
      takes_rest = true;
    } else if (name == "**") {
      takes_named = true;
    } else if (name == "/") {
      by_place = true;
    } else if (name.ends_with('=')) {
      names.push_back(name.substr(0, name.size() - 1));
    } else {
      names.push_back(name);
      needed = names.size();
    }
  }
  values_.resize(names.size());
  given_.resize(names.size());
  for (size_t i = 0; i < arguments.values.size(); ++i) {
    if (i < names.size()) {
      values_[i] = arguments.values[i];
      given_[i] = true;
    } else if (takes_rest) {
      varargs_.push_back(arguments.values[i]);
    } else {
      throw_error(what + " takes at most " + std::to_string(names.size()) + " values, found " +
                  std::to_string(arguments.values.size()));
    }
  }
  for (const auto& [name, value] : arguments.named) {
    const auto found = by_place ? names.end() : std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      if (!takes_named) throw_error(what + " takes no value named \"" + name + "\"");
      kwargs_.emplace_back(name, value);
      continue;
    }
    const auto at = static_cast<size_t>(found - names.begin());
    if (given_[at]) throw_error(what + " is given two values for \"" + name + "\"");
    values_[at] = value;
    given_[at] = true;
  }
  for (size_t i = 0; i < needed; ++i)
    if (!given_[i]) throw_error(what + " needs a value for \"" + std::string(names[i]) + "\"");
}

const std::string& BoundArguments::text(size_t at) const {
  return text_in(values_[at]);
}

const std::string& text_in(const Value& value) {
  if (!value.is_text()) throw_error("expected a text, found " + type_of(value));
  return value.text();
}

}  // namespace clover::data::jinja
