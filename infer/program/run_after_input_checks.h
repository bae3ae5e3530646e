#pragma once

#include <stdexcept>
#include <utility>

#include "data/files/error.h"

namespace clover::infer {

/// Calls `work`, the part of a command that runs after its input was validated, and returns its result.  An
/// InputError from `work` (a full disk, say) is not the fault of the user's files, so it is rethrown as
/// std::runtime_error, which ends the program with exit_failed instead of exit_bad_input.
template <class Work>
auto run_after_input_checks(Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const data::InputError& error) {
    throw std::runtime_error(error.what());
  }
}

}  // namespace clover::infer
