#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "model/drafters/drafter.h"
#include "model/target/target.h"

namespace clover::model {

/// What is known of a heads folder before its weights are loaded.  docs/checkpoint-format.md describes the
/// folder: config.json and model.safetensors.
struct HeadsInfo {
  nlohmann::json config;  // config.json, with all required keys
  uint64_t bytes = 0;     // size of model.safetensors
};

/// Loads heads for `target`.  They are frozen in its dtype unless `trainable`.  InputError when a tensor is
/// missing, unknown, truncated or of a wrong shape, or when the heads have another format version or were
/// trained on another target.
std::shared_ptr<Drafter> load_heads(const std::filesystem::path& folder, const Target& target,
                                    bool trainable);

/// InputError, which begins with `where`, unless the stored weight is bf16, fp16 or fp32 and all its values
/// are finite.
void check_weight(const std::string& where, const std::string& name, const at::Tensor& stored);

/// Reads config.json of a heads folder.  InputError for another format version and for missing or unknown
/// keys.
HeadsInfo read_heads_info(const std::filesystem::path& folder);

/// InputError, which begins with `where`, unless `map` is a draft vocabulary: i64 [V'], ascending token ids
/// below `vocab`.
void check_token_map(const std::string& where, const at::Tensor& map, int64_t vocab);

/// Writes a heads folder.  It appears only once it is complete, and replaces an older one.  `metadata`: the
/// keys "tokenizer", "chat_template", "training" and "golden" of config.json, or null.  Weights are stored in
/// `dtype`.
void save_heads(const std::filesystem::path& folder, Drafter& drafter, const Target& target,
                const nlohmann::json& metadata, at::ScalarType dtype);

/// Makes the "golden" object of config.json: `ids`, the tokens of a prompt, and the first head's best guess
/// at each position but the last, given the true tokens.  golden_agreement compares them with the guesses
/// after loading, to tell whether the heads still compute the same.
nlohmann::json make_golden(Drafter& drafter, const Target& target, const std::vector<int64_t>& ids);

/// The share, 0 to 1, of positions of `golden` at which the first head's best guess is the recorded one; -1
/// if `golden` lacks one of its keys.
double golden_agreement(Drafter& drafter, const Target& target, const nlohmann::json& golden);

}  // namespace clover::model
