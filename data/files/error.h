#pragma once

#include <stdexcept>
#include <string>

namespace clover::data {

/// Something the user gave is wrong: a file, a setting, a record.  The message is one sentence: what, where,
/// expected, found, what to do.  A program ends with exit code 2 when it meets one before work began.
class InputError : public std::runtime_error {
 public:
  explicit InputError(const std::string& message) : std::runtime_error(message) {}
};

}  // namespace clover::data
