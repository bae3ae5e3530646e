#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infer/requests/loaded_model.h"
#include "model/target/target.h"

namespace clover::train {

/// A conversation to measure heads on.  Without an answer of its own the target's answer is used.
struct EvalSample {
  std::vector<int64_t> ids;
  std::vector<uint8_t> supervised;  // as long as ids; all 0: a bare prompt
  std::string category;

  int64_t answer_begin() const;  // ids before the first supervised one
  bool answered() const { return answer_begin() < static_cast<int64_t>(ids.size()); }
};

struct EvalInput {
  std::vector<EvalSample> samples;
  std::string split;  // of a token store: "train" or "held_out"; "" for lines
  int64_t bad_records = 0;
};

/// What to measure on, and how much of it.
struct EvalSource {
  std::string input;          // a token store or a JSONL file
  std::string target_folder;  // of the target and its chat template
  std::string chat_template;  // "": recognised from the folder
  int64_t max_length = 2048;  // longer samples are cut, to the target's context at least
  int64_t limit = 200;        // samples
};

/// Reads the held-out samples of a token store (the training samples when none is held out, which it says on
/// stderr), or a JSONL file of training records and batch requests; of a request with several turns the first
/// one.  Bad lines are reported on stderr and skipped.  InputError for a store of another target and for
/// input without a sample.
EvalInput read_eval_input(const EvalSource& source, const infer::PromptEncoder& prompts,
                          const model::Target& target);

}  // namespace clover::train
