#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "model/drafters/drafter.h"
#include "model/target/target.h"

namespace clover::model {

/// What a heads folder holds: config.json and model.safetensors (docs/checkpoint-format.md).
struct HeadsInfo {
  nlohmann::json config;  // config.json
  uint64_t bytes = 0;     // of model.safetensors
};

/// Loads heads for `target`, frozen in its dtype unless `trainable`.  InputError when something is missing,
/// extra, mis-shaped or truncated, or when the heads have another version or were trained on another target.
std::shared_ptr<Drafter> load_heads(const std::filesystem::path& folder, const Target& target,
                                    bool trainable);

/// InputError, beginning with `where`, when a stored weight has a dtype other than bf16, fp16 and fp32, or
/// holds NaN or infinity.
void check_weight(const std::string& where, const std::string& name, const at::Tensor& stored);

/// Reads config.json of a heads folder; InputError for another version, or missing keys.
HeadsInfo read_heads_info(const std::filesystem::path& folder);

/// InputError, beginning with `where`, unless `map` is a draft vocabulary: i64 [V'], ascending ids below
/// `vocab`.
void check_token_map(const std::string& where, const at::Tensor& map, int64_t vocab);

/// Writes a heads folder, which appears when it is complete and replaces an older one.  `about`: the objects
/// "tokenizer", "chat_template", "training" and "golden" of config.json.  Weights are stored in `dtype`.
void save_heads(const std::filesystem::path& folder, Drafter& drafter, const Target& target,
                const nlohmann::json& about, at::ScalarType dtype);

/// The golden prompt tells whether loaded heads compute what they did when they were saved: the share, 0 to
/// 1, of its positions at which the first head's teacher-forced guess is the recorded one; -1 without a
/// golden prompt.
double golden_agreement(Drafter& drafter, const Target& target, const nlohmann::json& golden);

/// Makes the "golden" object of config.json: the token ids of a prompt, and the first head's guess at each
/// position.
nlohmann::json make_golden(Drafter& drafter, const Target& target, const std::vector<int64_t>& ids);

}  // namespace clover::model
