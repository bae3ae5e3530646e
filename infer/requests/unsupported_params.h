#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace clover::infer {

/// InputError for a parameter of a request that would change the answer and is not supported (n, logprobs,
/// num_beams, tools, ...), unless it has the value at which it changes nothing.  With `strict`, a name that
/// is neither a sampling parameter (sampling_params.h), nor ignored, nor in `also_known` is an InputError
/// too.
void refuse_unsupported_params(const nlohmann::json& fields, bool strict,
                               const std::vector<std::string>& also_known);

}  // namespace clover::infer
