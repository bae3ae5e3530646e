#pragma once

#include <string>

namespace clover::data {

/// Whether a template's text is, byte for byte, one that a built-in format was verified against.  The format
/// writes every conversation of system, user and assistant messages as that template does.
bool is_verified_template(const std::string& chat_template);

}  // namespace clover::data
