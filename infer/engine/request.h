#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "infer/controls/logit_controls.h"
#include "infer/tree/verify.h"
#include "kernels/vocabulary/sample.h"
#include "model/target/target.h"

namespace clover::infer {

/// What the target answers to a prompt of P tokens, from an earlier pass over both.
struct RecordedAnswer {
  std::vector<int64_t> token_ids;  // [A], A >= 1: its greedy answer, complete, or max_tokens of it
  model::Features features;        // [P + A, ..] those that the drafter reads, on the target's device
};

/// One sequence to continue.
struct Request {
  int64_t tag = 0;              // chosen by the caller and returned in the Completion
  std::vector<int64_t> prompt;  // token ids, not empty
  kernels::SamplingRule sampling;
  std::shared_ptr<const LogitControls> controls;  // penalties, bans and biases; null: none
  RandomKey random;                               // which random numbers sample its tokens
  int64_t max_tokens = 0;                         // of the answer, >= 1; cut to what the context holds
  std::vector<std::string> stop;                  // strings that end the answer
  /// The answer continues the prompt's text, so its text keeps a leading space of its first token.
  bool continues_text = false;
  std::shared_ptr<const RecordedAnswer> recorded;  // set if EngineOptions::recorded_answers is, else null
};

/// The answer to a request.
struct Completion {
  int64_t tag = 0;                 // Request::tag
  std::vector<int64_t> token_ids;  // all that the model emitted, the end token included
  std::string text;                // without the end token and without the stop string
  std::string finish_reason;       // stop | length | error
  std::string error;               // one sentence, or empty; then the other members hold what preceded it
  int64_t prompt_tokens = 0;
  int64_t steps = 0;                        // decode passes that this sequence took part in
  std::vector<int64_t> accepted_histogram;  // [n]: steps in which n guesses were accepted
};

}  // namespace clover::infer
