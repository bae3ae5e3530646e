#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "infer/requests/loaded_model.h"

namespace clover::infer {

enum class FolderKind { model, heads };
/// Whether a folder's config.json describes a model ("model_type") or heads ("format_version" and "kind").
/// InputError when it describes neither.
FolderKind kind_of_folder(const std::filesystem::path& folder);

/// {"folder", "type": "model", "config", "tensors", "parameters", "bytes", "fingerprint", "tokenizer",
/// "chat_template"}.  Everything is read and checked.  With `verify` also "not_finite", the names of the
/// tensors with values that are not finite.
nlohmann::json inspect_model(const ModelOptions& options, bool verify);

/// {"folder", "type": "heads", "kind", "config", "tensors", "parameters", "bytes"}.
nlohmann::json inspect_heads(const std::filesystem::path& folder);

/// What heads do on the target of `options`: {"golden_agreement", and with `prompts` "own_prompts"}.
///   golden_agreement  The share, 0 to 1, of positions of the prompt recorded with the heads (their golden
///                     prompt) at which their first draft token is the recorded one.
///   own_prompts       {"requests", "tokens_per_step", "differs_from_plain"}: the first ten requests of the
///                     file, decoded greedily with the heads, and how many answers are not those of plain
///                     decoding, which must be none.
/// InputError when no prompt is recorded, or when the heads belong to another target.
nlohmann::json verify_heads(const std::filesystem::path& folder, const ModelOptions& options,
                            const std::string& prompts);

/// "key: value" lines that people read; nested keys are joined by dots.
std::string as_lines(const nlohmann::json& about);

}  // namespace clover::infer
