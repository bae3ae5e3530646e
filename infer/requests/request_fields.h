#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "infer/controls/control_fields.h"
#include "kernels/vocabulary/sample.h"

namespace clover::infer {

/// How one request is answered.  The flags of a command give the defaults, a line's own fields win.
struct SamplingFields {
  kernels::SamplingRule rule;
  ControlFields controls;
  uint64_t seed = 0;
  bool own_seed = false;  // the line brought its seed: its randomness depends on nothing else
  int64_t max_tokens = 512;
  std::vector<std::string> stop;
};

/// Reads temperature, top_p, top_k, min_p, controls of logits (control_fields.h), seed, max_tokens (or
/// max_completion_tokens) and stop of `fields` over `defaults`; a null counts as absent.  InputError for a
/// wrong type or range, and for a parameter that changes answers but is not supported (n, logprobs,
/// num_beams, tools, ...), unless it has its neutral value.  With `strict`, a name that is neither supported
/// nor in `also_known` is an InputError too.
SamplingFields read_sampling_fields(const nlohmann::json& fields, const SamplingFields& defaults, bool strict,
                                    const std::vector<std::string>& also_known = {});

/// A whole number that 64 bits hold, also one that is written 4.0; none for anything else.
std::optional<int64_t> as_integer(const nlohmann::json& value);

/// Whether it is one that is read.
bool is_sampling_field(const std::string& name);

/// InputError in one sentence when a value is out of its range.
void check_sampling(const SamplingFields& fields);

}  // namespace clover::infer
