#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "infer/requests/loaded_model.h"

namespace clover::infer {

enum class FolderKind { model, heads };
/// What a folder holds, by its config.json: a model if that has "model_type", heads if it has
/// "format_version" and "kind".  InputError when it is neither.
FolderKind kind_of_folder(const std::filesystem::path& folder);

/// Reads and checks a whole model folder (options.target).  Returns {"folder", "type": "model", "config",
/// "tensors", "parameters", "bytes", "fingerprint", "tokenizer", "chat_template", ..}, with `check_values`
/// also "not_finite", the names of the tensors that hold an infinity or a NaN.
nlohmann::json inspect_model(const ModelOptions& options, bool check_values);

/// Returns {"folder", "type": "heads", "kind", "config", "tensors", "parameters", "bytes", ..} of a heads
/// folder.
nlohmann::json inspect_heads(const std::filesystem::path& folder);

/// Tests heads on the target of `options`.  `prompts`: a file of requests; may be empty.  Returns
///   "golden_agreement"  The heads folder has a golden prompt, and the first guess that the heads made at
///   each
///                       of its positions when they were saved.  This is the share of positions, 0 to 1, at
///                       which they guess the same now.
///   "own_prompts"       Only with `prompts`: {"requests", "tokens_per_step", "differs_from_plain"}.  The
///                       first ten requests are decoded greedily with the heads and plainly;
///                       differs_from_plain counts the answers that differ, and must be 0.
/// InputError when the folder has no golden prompt, or when the heads belong to another target.
nlohmann::json verify_heads(const std::filesystem::path& folder, const ModelOptions& options,
                            const std::string& prompts);

/// The JSON object as "key: value" lines for people; nested keys are joined by dots.
std::string to_lines(const nlohmann::json& description);

}  // namespace clover::infer
