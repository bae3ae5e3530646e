#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace clover::infer {

/// Whether a request that gives this value to a parameter which is not supported would be answered the same
/// without it: `neutral`, or what clients write for nothing.
bool is_neutral(const nlohmann::json& fields, const std::string& name, const nlohmann::json& value,
                const nlohmann::json& neutral);

/// The same of parameters of other engines that OpenAI's requests have not got, of which only these values
/// are known.
bool is_left_at_default(const nlohmann::json& fields, const std::string& name, const nlohmann::json& value);

}  // namespace clover::infer
