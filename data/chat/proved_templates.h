#pragma once

#include <string>

namespace clover::data {

/// Whether a template's text is, byte for byte, one that a built-in format was verified against: the format
/// writes every conversation of system, user and assistant as that template does.
bool is_proved(const std::string& chat_template);

}  // namespace clover::data
