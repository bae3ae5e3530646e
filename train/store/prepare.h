#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infer/requests/loaded_model.h"

namespace clover::train {

struct PrepareOptions {
  infer::ModelOptions model;
  std::vector<std::string> input;
  std::string output;  // may be empty with a preview
  double holdout = 0.02;
  int64_t preview = 0;
  int64_t max_length = 2048;
  int64_t max_bad_records = -1;  // -1: 100, or one in a hundred if that is more
};

/// Reads records, shows and skips bad ones, writes a token store.  Returns an exit code: done, or some
/// records failed.
int prepare(const PrepareOptions& options);

}  // namespace clover::train
