#pragma once

#include <string>

#include "data/jinja/functions.h"

// The functions every template may call.
namespace clover::data::jinja {

Value new_dict(const Arguments& arguments);
Value new_range(const Arguments& arguments);
/// The date that Llama 3.1's templates fall back to, so that a job can be repeated on another day.
std::string date(const std::string& format);

}  // namespace clover::data::jinja
