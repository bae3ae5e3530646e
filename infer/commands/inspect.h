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

/// Runs the heads over the prompt recorded with them (their golden prompt), on the target of `options`.
/// Returns the share, 0 to 1, of positions at which their first draft token is the recorded one.  InputError
/// when nothing is recorded, or when the heads belong to another target.
double verify_heads(const std::filesystem::path& folder, const ModelOptions& options);

/// "key: value" lines that people read; nested keys are joined by dots.
std::string as_lines(const nlohmann::json& about);

}  // namespace clover::infer
