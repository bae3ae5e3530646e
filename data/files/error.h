#pragma once

#include <stdexcept>
#include <string>

namespace clover::data {

/// An error that the user can fix: a bad file, setting or record.  The message is one sentence that says what
/// is wrong and where, what was expected and found, and what to do.  A program ends with exit code 2 when one
/// is thrown before its work begins.
class InputError : public std::runtime_error {
 public:
  explicit InputError(const std::string& message) : std::runtime_error(message) {}
};

}  // namespace clover::data
