#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infer/requests/loaded_model.h"

namespace clover::train {

/// Options of `clover-train prepare`.
struct PrepareOptions {
  infer::ModelOptions model;
  std::vector<std::string> input;  // files of records
  std::string output;              // folder of the token store; may be "" with a preview
  double holdout = 0.02;           // share of the samples to hold out for evaluation
  int64_t preview = 0;             // how many samples to print
  int64_t max_length = 2048;       // tokens; longer samples are cut
  int64_t max_bad_records = -1;    // -1: 100, or 1 % of the records if that is more
};

/// Turns the records into samples and writes a token store; reports and skips bad records.  Returns
/// infer::exit_done, or infer::exit_some_failed if records were bad.
int prepare(const PrepareOptions& options);

}  // namespace clover::train
