#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infer/requests/loaded_model.h"

namespace clover::train {

/// Options of `clover-train prepare`.
struct PrepareOptions {
  infer::ModelOptions model;
  std::vector<std::string> input;
  std::string output;  // may be empty with a preview
  double holdout = 0.02;
  int64_t preview = 0;  // how many samples to print
  int64_t max_length = 2048;
  int64_t max_bad_records = -1;  // -1: 100, or one in a hundred if that is more
};

/// Reads records, reports and skips bad ones, and writes a token store.  Returns an exit code: done, or some
/// records were bad.
int prepare(const PrepareOptions& options);

}  // namespace clover::train
