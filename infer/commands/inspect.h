#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "infer/requests/loaded_model.h"

namespace clover::infer {

/// Whether config.json of a folder describes heads ("format_version" and "kind") or a model ("model_type").
/// InputError when it is neither.
enum class FolderKind { model, heads };
FolderKind kind_of_folder(const std::filesystem::path& folder);

/// {"folder", "type": "model", "config", "tensors", "parameters", "bytes", "fingerprint", "tokenizer",
/// "chat_template"}: everything is read and checked.  With `verify`, every value must be finite:
/// "not_finite" lists the tensors that are not.
nlohmann::json inspect_model(const ModelOptions& options, bool verify);

/// {"folder", "type": "heads", "kind", "config", "tensors", "parameters", "bytes"}.
nlohmann::json inspect_heads(const std::filesystem::path& folder);

/// How often the heads' first guesses are the recorded ones over their golden prompt (0..1), on the target of
/// `options`.  InputError when they carry none or belong to another target.
double verify_heads(const std::filesystem::path& folder, const ModelOptions& options);

/// "key: value" lines for people, nested keys joined by dots.
std::string as_lines(const nlohmann::json& about);

}  // namespace clover::infer
