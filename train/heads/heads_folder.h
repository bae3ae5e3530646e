#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "model/drafters/drafter.h"
#include "model/target/target.h"

namespace clover::train {

/// The objects "tokenizer" and "chat_template" for config.json of a heads folder, copied from a token store's
/// store.json.
nlohmann::json data_provenance(const nlohmann::json& store_about);

/// Why a heads folder is damaged, as far as can be told without its target; "" if it is whole.
std::string heads_damage(const std::filesystem::path& folder);

/// Writes a heads folder with a golden prompt, the first 256 of `golden_ids`
/// (model/checkpoint/heads_checkpoint.h).  A trainable drafter is frozen for a moment and thawed again.
void write_heads(const std::filesystem::path& folder, model::Drafter& drafter, const model::Target& target,
                 nlohmann::json about, const std::vector<int64_t>& golden_ids, at::ScalarType dtype);

}  // namespace clover::train
