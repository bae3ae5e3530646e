#pragma once

#include <stdexcept>
#include <utility>

#include "data/files/error.h"

namespace clover::infer {

/// Runs work that has begun.  Bad input is found before; what fails from here on, a full disk say, is no
/// fault of the user's files, so it ends with exit code 1.
template <class Work>
auto once_begun(Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const data::InputError& error) {
    throw std::runtime_error(error.what());
  }
}

}  // namespace clover::infer
