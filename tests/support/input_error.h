#pragma once

#include <string>

#include "data/error.h"

namespace clover::test {

/// The sentence of the data::InputError that `body` throws; empty if none.
template <class Body>
std::string input_error(const Body& body) {
  try {
    body();
  } catch (const data::InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace clover::test
