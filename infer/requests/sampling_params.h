#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "infer/controls/control_fields.h"
#include "kernels/vocabulary/sample.h"

namespace clover::infer {

/// How one request is answered (vLLM's SamplingParams).  A command's options give the defaults; the fields of
/// a request's line override them.
struct SamplingParams {
  kernels::SamplingRule rule;  // temperature, top_p, top_k, min_p
  ControlFields controls;      // penalties, bans and biases
  uint64_t seed = 0;
  bool has_own_seed = false;  // the line gives the seed, so the random numbers depend on it and not on the id
  int64_t max_tokens = 512;
  std::vector<std::string> stop;  // texts that end an answer and are cut off it
};

/// Reads temperature, top_p, top_k, min_p, seed, max_tokens (or max_completion_tokens), stop and the logit
/// controls (infer/controls/control_fields.h) from `fields`.  A field that is absent or null has its value
/// from `defaults`. InputError for a wrong type or range, and for what refuse_unsupported_params refuses;
/// `strict` and `also_known` are explained there.
SamplingParams read_sampling_params(const nlohmann::json& fields, const SamplingParams& defaults, bool strict,
                                    const std::vector<std::string>& also_known = {});

/// Whether read_sampling_params reads a field of this name.
bool is_sampling_param(const std::string& name);

/// InputError when a value is out of its range.
void check_sampling(const SamplingParams& params);

/// A JSON number as an integer, when it is a whole number that fits 64 bits (4.0 counts); otherwise empty.
std::optional<int64_t> as_integer(const nlohmann::json& value);

}  // namespace clover::infer
