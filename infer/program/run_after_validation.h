#pragma once

#include <stdexcept>
#include <utility>

#include "data/files/error.h"

namespace clover::infer {

/// Runs the part of a command that comes after its input was validated, and returns its result.  An
/// InputError from there (a disk that is full, say) is not the fault of the user's files, so it is rethrown
/// as std::runtime_error and ends with exit code 1 instead of 2.
template <class Work>
auto run_after_validation(Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const data::InputError& error) {
    throw std::runtime_error(error.what());
  }
}

}  // namespace clover::infer
