#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace clover::infer {

/// InputError for a parameter of a request that would change the answer and is not supported (n, logprobs,
/// num_beams, tools, ...), unless it has the value at which it has no effect.  With `strict` (OpenAI
/// requests), an unknown name is an InputError too.  Names in `also_known` are not checked, because the
/// caller reads them.
void refuse_unsupported_params(const nlohmann::json& fields, bool strict,
                               const std::vector<std::string>& also_known);

}  // namespace clover::infer
