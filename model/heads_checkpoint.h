#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "model/drafter.h"
#include "model/target.h"

namespace clover::model {

/// A heads folder: config.json and model.safetensors (docs/checkpoint-format.md).
///   config.json: format_version, kind, drafter (settings), draft_vocab, target {fingerprint, hidden, vocab,
///   ...},
///                tokenizer, chat_template (hashes), training (cost), golden (prompt, answer, agreement)
struct HeadsInfo {
  nlohmann::json config;
  uint64_t bytes = 0;
};

/// Reads heads strictly for `target`: InputError when anything is missing, extra, mis-shaped, truncated, of
/// another version or of another target.  Frozen in `dtype` unless trainable.
std::shared_ptr<Drafter> load_heads(const std::filesystem::path& folder, const Target& target,
                                    bool trainable);

/// config.json of a heads folder, checked for version and keys.
HeadsInfo read_heads_info(const std::filesystem::path& folder);

/// Writes a heads folder atomically (a temporary folder beside it, then rename; an older one is replaced).
/// `about`: the objects "tokenizer", "chat_template", "training", "golden" of config.json.  Weights are
/// stored in `dtype`.
void save_heads(const std::filesystem::path& folder, Drafter& drafter, const Target& target,
                const nlohmann::json& about, at::ScalarType dtype);

/// How often the drafter's teacher-forced first guess is the recorded token, 0..1, over the golden prompt of
/// the checkpoint; -1 when it carries none.
double golden_agreement(Drafter& drafter, const Target& target, const nlohmann::json& golden);

/// Makes the "golden" object: ids (prompt and answer, from the target itself) and the first guesses at each
/// position.
nlohmann::json make_golden(Drafter& drafter, const Target& target, const std::vector<int64_t>& ids);

}  // namespace clover::model
