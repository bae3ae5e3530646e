#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace clover::train {

/// What conversations begin with, from files of the user.
struct Openings {
  std::vector<std::string> topics, first_questions;  // empty without a file
  nlohmann::json hashes = nlohmann::json::object();  // of the files, by a name for messages
};

/// Reads the files, whose names may be empty.  InputError when one is not a regular file, which a run that
/// continues reads again, or does not hold what it should.
Openings read_openings(const std::string& topics_file, const std::string& first_questions_file);

}  // namespace clover::train
