#pragma once

#include <string>

#include "data/chat/jinja/values/signature.h"

// Filters, tests and methods by name.  InputError for an unknown name, and where jinja2 would raise an error.
namespace clover::data::jinja {

bool has_filter(const std::string& name);
bool is_unsupported_filter(const std::string& name);  // jinja2 has it, we do not; has_filter is true for it
Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments);
bool has_test(const std::string& name);
bool apply_test(const std::string& name, const Value& value, const Arguments& arguments);
/// Whether a value's type has a method of that name that the sandbox allows.
bool has_method(const Value& value, const std::string& name);
Value call_method(const Value& value, const std::string& name, const Arguments& arguments);

}  // namespace clover::data::jinja
