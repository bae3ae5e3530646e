#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "infer/controls/logit_controls.h"
#include "infer/tree/verify.h"
#include "kernels/vocabulary/sample.h"

namespace clover::infer {

/// One sequence to continue.
struct Request {
  int64_t tag = 0;              // chosen by the caller; comes back with the completion
  std::vector<int64_t> prompt;  // token ids, not empty
  kernels::SamplingRule sampling;
  std::shared_ptr<const LogitControls> controls;  // null: none
  RandomKey random;
  int64_t max_tokens = 0;         // >= 1; cut to what the context holds
  std::vector<std::string> stop;  // strings that end the answer
  bool continues_text = false;    // the answer continues the prompt's text, so its first space belongs to it
};

/// The answer.  `token_ids` is all that the model emitted, the end token included; `text` is without it and
/// without the stop string.
struct Completion {
  int64_t tag = 0;
  std::vector<int64_t> token_ids;
  std::string text;
  std::string finish_reason;  // stop | length | error
  std::string error;          // one sentence, or empty; the other members hold what came before it
  int64_t prompt_tokens = 0;
  int64_t steps = 0;                        // decode passes this sequence took part in
  std::vector<int64_t> accepted_histogram;  // [a]: steps in which a guesses were accepted
};

}  // namespace clover::infer
