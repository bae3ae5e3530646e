#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "model/drafters/drafter.h"
#include "model/target/target.h"

namespace clover::train {

/// The objects "tokenizer" and "chat_template" for config.json of a heads folder, copied from
/// `store_metadata`, a token store's store.json.
nlohmann::json tokenization_of(const nlohmann::json& store_metadata);

/// Why a heads folder is damaged, as far as can be told without its target; "" if no damage is found.
std::string heads_damage(const std::filesystem::path& folder);

/// Writes a heads folder with weights in `dtype` and, if `golden_ids` are at least 2, a golden prompt of the
/// first 256 of them (model/checkpoint/heads_checkpoint.h).  `metadata`: further objects for config.json.  A
/// thawed drafter is frozen to compute the golden guesses, and thawed again.
void write_heads(const std::filesystem::path& folder, model::Drafter& drafter, const model::Target& target,
                 nlohmann::json metadata, const std::vector<int64_t>& golden_ids, at::ScalarType dtype);

/// Records in the config.json of a run's heads what the whole run has taken (FitJob::cost), as "run" of
/// "training".  A folder that is missing or damaged is left as it is.
void write_cost_of_run(const std::filesystem::path& folder, const nlohmann::json& cost);

}  // namespace clover::train
