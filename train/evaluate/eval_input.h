#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "infer/requests/loaded_model.h"
#include "model/target/target.h"

namespace clover::train {

/// A sample to measure heads on.  If it has no answer, `evaluate` appends the target's.
struct EvalSample {
  std::vector<int64_t> ids;
  std::vector<uint8_t> supervised;  // as long as ids; all 0: a prompt without an answer
  std::string category;

  int64_t answer_begin() const;  // index of the first supervised id
  bool has_answer() const { return answer_begin() < static_cast<int64_t>(ids.size()); }
};

struct EvalInput {
  std::vector<EvalSample> samples;
  std::string split;  // of the token store: "train" or "held_out"; "" for a JSONL file
  int64_t bad_records = 0;
};

/// Where the samples come from.
struct EvalSource {
  std::string input;          // a token store or a JSONL file
  std::string target_folder;  // has the chat template, too
  std::string chat_template;  // name of a built-in format; "": the template in target_folder
  int64_t max_length = 2048;  // tokens; longer samples are cut; the target's context is a limit, too
  int64_t limit = 200;        // the most samples to read
};

/// Reads the samples of a token store or a JSONL file.  Of a store it reads the held-out samples, or, with a
/// warning on stderr, the training samples if none are held out.  A JSONL file has training records and batch
/// requests, of which the first turn is used; bad lines are reported on stderr and skipped.  InputError for a
/// store of another target, and for input without a sample.
EvalInput read_eval_input(const EvalSource& source, const infer::PromptEncoder& encoder,
                          const model::Target& target);

}  // namespace clover::train
