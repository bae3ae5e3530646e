#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "model/drafters/drafter.h"
#include "model/target/target.h"

namespace clover::train {

/// The objects "tokenizer" and "chat_template" of a heads folder, as the data set recorded them.
nlohmann::json origin_of_data(const nlohmann::json& store_about);

/// Why a heads folder cannot be read, without the target to read it with; "" when it is whole.
std::string damage_of_heads(const std::filesystem::path& folder);

/// Writes heads with a golden prompt made of `golden_ids` (cut to 256 tokens).  Freezes a trainable drafter
/// for the moment.
void write_heads(const std::filesystem::path& folder, model::Drafter& drafter, const model::Target& target,
                 nlohmann::json about, const std::vector<int64_t>& golden_ids, at::ScalarType dtype);

}  // namespace clover::train
