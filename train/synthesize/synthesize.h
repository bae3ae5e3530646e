#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "infer/requests/decode_flags.h"
#include "infer/requests/model_options.h"
#include "train/synthesize/turn_check.h"

namespace clover::train {

struct SynthesizeOptions {
  infer::ModelOptions model;
  infer::DecodeFlags decode;  // scheduling, and sampling of the answers
  std::string output;         // JSON lines of conversations
  int64_t count = 0;          // conversations wanted
  int64_t turns = 1;          // of the user, in a conversation
  std::string topics;         // file with a topic on each line; empty: none
  std::string
      first_questions;  // file of requests whose first user message begins a conversation; empty: none
  double user_temperature = 1, user_top_p = 0.95;  // of the user's turns
  int64_t user_max_tokens = 256;
  double holdout = 0.05;  // share of the conversations that goes to a file of its own
};

/// What became of the conversations that were begun.
struct SynthesisCounts {
  int64_t begun = 0, kept = 0, held_out = 0;
  FaultCounts dropped = {};    // for their first turn or its answer
  FaultCounts shortened = {};  // kept without the later turn that had this fault
  int64_t surplus = 0;         // good, and more than were asked for
};

/// Lets the target make conversations of its own, in both roles: the user's turns are sampled as
/// continuations of its chat template where a user speaks (user_frame.h), the answers are the target's. Turns
/// with a fault (turn_check.h), and turns of the user like earlier ones (near_duplicates.h), are dropped. The
/// same options give the same conversations.  Writes them to OUTPUT, and those held out for evaluation to a
/// file of that name with .held-out before the suffix.  Until both files are complete, everything that was
/// generated is in the folder OUTPUT.parts, from which an interrupted run continues.  Returns the exit code:
/// exit_some_failed when fewer than asked for are kept, because too few are good or the first questions are
/// used up.  InputError when none is.
int synthesize(const SynthesizeOptions& options, const nlohmann::json& resolved_options);

}  // namespace clover::train
