#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infer/loaded_model.h"

namespace clover::train {

/// A conversation to measure heads on.  Without an answer of its own the target's answer is used.
struct EvalSample {
  std::vector<int64_t> ids;
  std::vector<uint8_t> supervised;  // as long as ids; all 0: a bare prompt
  std::string category;

  int64_t prompt_length() const;  // ids before the first supervised one
  bool answered() const;
};

struct EvalInput {
  std::vector<EvalSample> samples;
  int64_t bad_records = 0;
};

/// Reads the held-out samples of a token store (the training samples when none is held out), or a JSONL file
/// of training records and batch requests; of a request with several turns the first one.  Bad lines are
/// reported on stderr and skipped.
EvalInput read_eval_input(const std::string& input, const infer::PromptEncoder& prompts,
                          const std::string& target, const std::string& template_name, int64_t max_length,
                          int64_t limit, int64_t vocab);

}  // namespace clover::train
