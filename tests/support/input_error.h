#pragma once

#include <gtest/gtest.h>

#include <string>

#include "data/files/error.h"

namespace clover::test {

/// The message of the data::InputError that `body` throws, which must not be empty; "" if it throws none.
template <class Body>
std::string input_error(const Body& body) {
  try {
    body();
  } catch (const data::InputError& error) {
    const std::string sentence = error.what();
    EXPECT_NE(sentence, "") << "an InputError that says nothing";
    return sentence;
  }
  return "";
}

}  // namespace clover::test
