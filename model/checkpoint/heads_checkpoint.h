#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "data/files/safetensors.h"
#include "model/drafters/drafter.h"
#include "model/target/target.h"

namespace clover::model {

/// A heads folder: config.json and model.safetensors (docs/checkpoint-format.md lists what they hold).
struct HeadsInfo {
  nlohmann::json config;  // config.json
  uint64_t bytes = 0;     // of model.safetensors
};

/// Reads heads strictly for `target`: InputError when anything is missing, extra, mis-shaped, truncated, of
/// another version or of another target.  Frozen in the target's dtype unless trainable.
std::shared_ptr<Drafter> load_heads(const std::filesystem::path& folder, const Target& target,
                                    bool trainable);

/// Gives `drafter` the weights of `reader`, where a parameter's tensor is called name_of(its name); of other
/// tensors only `others` may be there.  InputError, beginning with `where`, when one is missing, extra,
/// mis-shaped, of another type than bf16, fp16 and fp32, or holds what is no finite number.
void read_weights(const std::string& where, const data::SafetensorsReader& reader, Drafter& drafter,
                  std::set<std::string> others,
                  const std::function<std::string(const std::string&)>& name_of);

/// config.json of a heads folder, checked for version and keys.
HeadsInfo read_heads_info(const std::filesystem::path& folder);

/// InputError, beginning with `where`, unless `map` is a draft vocabulary: i64 [V'], ascending ids below
/// `vocab`.
void check_token_map(const std::string& where, const at::Tensor& map, int64_t vocab);

/// Writes a heads folder whole or not at all (built beside its place; an older one is replaced).  `about`:
/// the objects "tokenizer", "chat_template", "training", "golden" of config.json.  Weights are stored in
/// `dtype`.
void save_heads(const std::filesystem::path& folder, Drafter& drafter, const Target& target,
                const nlohmann::json& about, at::ScalarType dtype);

/// How often the drafter's teacher-forced first guess is the recorded token, 0..1, over the golden prompt of
/// the checkpoint; -1 when it carries none.
double golden_agreement(Drafter& drafter, const Target& target, const nlohmann::json& golden);

/// Makes the "golden" object: `ids`, a text of the target's tokens, and the first guesses at each position.
nlohmann::json make_golden(Drafter& drafter, const Target& target, const std::vector<int64_t>& ids);

}  // namespace clover::model
