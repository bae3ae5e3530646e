#pragma once

#include <string>

#include "data/chat/jinja/values/signature.h"

// What a template calls by a name.  InputError where there is none of that name, and where Jinja would
// refuse.
namespace clover::data::jinja {

bool has_filter(const std::string& name);
bool is_unwritten_filter(const std::string& name);  // Jinja has it and we lack it
Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments);
bool has_test(const std::string& name);
bool apply_test(const std::string& name, const Value& value, const Arguments& arguments);
/// Whether a value's type has a method of that name that the sandbox leaves.
bool has_method(const Value& value, const std::string& name);
Value call_method(const Value& value, const std::string& name, const Arguments& arguments);

}  // namespace clover::data::jinja
