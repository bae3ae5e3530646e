#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infer/requests/loaded_model.h"
#include "model/target/target.h"

namespace clover::train {

/// A sample to measure heads on.  If it has no answer, the target's answer is used.
struct EvalSample {
  std::vector<int64_t> ids;
  std::vector<uint8_t> supervised;  // as long as ids; all 0: a prompt without an answer
  std::string category;

  int64_t answer_begin() const;  // index of the first supervised id
  bool answered() const { return answer_begin() < static_cast<int64_t>(ids.size()); }
};

struct EvalInput {
  std::vector<EvalSample> samples;
  std::string split;  // of a token store: "train" or "held_out"; "" for a JSONL file
  int64_t bad_records = 0;
};

/// What to measure on.
struct EvalSource {
  std::string input;          // a token store or a JSONL file
  std::string target_folder;  // has the chat template, too
  std::string chat_template;  // name of a format; "": the folder's own
  int64_t max_length = 2048;  // longer samples are cut; also limited by the target's context
  int64_t limit = 200;        // at most so many samples
};

/// Reads the held-out samples of a token store, or its training samples with a warning on stderr when none
/// are held out; or a JSONL file of training records and batch requests.  Of a request with several turns the
/// first is used.  Bad lines are reported on stderr and skipped.  InputError for a store of another target,
/// and for input without a sample.
EvalInput read_eval_input(const EvalSource& source, const infer::PromptEncoder& prompts,
                          const model::Target& target);

}  // namespace clover::train
